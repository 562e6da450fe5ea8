"""The order of day, month and year: found where the dates show it, asked for where they do not."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

from unmet._exceptions import InputError
from unmet.mobility.records.read import Records, read_records


def write(path: Path, days: list[date], form: str) -> Path:
    """Write a trip at 8:30 on each day."""
    rows = [f"{day.strftime(form)} 08:30,a" for day in days]
    path.write_text("start_time,start_station_id\n" + "\n".join(rows) + "\n")
    return path


def starts(records: Records) -> list[datetime]:
    return [row[0] for row in records.connection.execute("SELECT started_at FROM trips ORDER BY 1").fetchall()]


def days_of(first: date, count: int) -> list[date]:
    return [first + timedelta(days=i) for i in range(count)]


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y", "%y/%m/%d"])
@pytest.mark.parametrize("first", [date(2021, 6, 20), date(2021, 7, 1)])
def test_dates_that_follow_each_other_show_their_order(tmp_path: Path, form: str, first: date) -> None:
    days = days_of(first, 12)  # from 1 July, no day is beyond 12
    with read_records(write(tmp_path / "a.csv", days, form), timezone="UTC") as records:
        assert starts(records) == [datetime(d.year, d.month, d.day, 8, 30) for d in days]
        concluded = "order of day and month concluded" in records.quality["reason"].tolist()
        assert concluded or first.day > 12


def test_files_of_different_orders_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", days_of(date(2024, 3, 10), 9), "%d/%m/%Y")
    write(tmp_path / "b.csv", days_of(date(2024, 3, 19), 9), "%m/%d/%Y")
    with pytest.raises(InputError, match=r"a\.csv has dates in the order dmy, and .*b\.csv in the order mdy"):
        read_records(tmp_path, timezone="UTC")


def test_a_file_that_is_read_in_the_order_of_another_is_noted(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", [date(2024, 3, 1), date(2024, 3, 2)], "%d/%m/%Y")
    write(tmp_path / "b.csv", days_of(date(2024, 3, 3), 28), "%d/%m/%Y")
    with read_records(tmp_path, timezone="UTC") as records:
        noted = records.quality.query("reason == 'order of day and month concluded'")
        assert starts(records)[0] == datetime(2024, 3, 1, 8, 30)
    assert noted["rows"].to_list() == [2]
    assert noted["detail"].str.contains("a.csv can be read in several ways: read as dmy").all()


def test_the_order_is_found_if_the_first_file_has_other_dates(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", [date(2024, 3, 1)], "%Y-%m-%d")
    write(tmp_path / "b.csv", days_of(date(2024, 3, 2), 28), "%d/%m/%Y")
    with read_records(tmp_path, timezone="UTC") as records:
        assert len(starts(records)) == 29
        assert starts(records)[-1] == datetime(2024, 3, 29, 8, 30)


def test_a_date_that_can_be_read_in_two_ways_asks_for_the_order(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [date(2024, 2, 1)], "%d/%m/%Y")
    with pytest.raises(InputError, match=r"01/02/2024 is 2024-01-02 \(mdy\) or 2024-02-01 \(dmy\).*--date-order"):
        read_records(path, timezone="UTC")
    for order, month, day in (("dmy", 2, 1), ("mdy", 1, 2)):
        with read_records(path, timezone="UTC", date_order=order) as records:
            assert starts(records) == [datetime(2024, month, day, 8, 30)]


def test_the_same_day_and_month_need_no_order(tmp_path: Path) -> None:
    with read_records(write(tmp_path / "a.csv", [date(2024, 7, 7)], "%d/%m/%Y"), timezone="UTC") as records:
        assert starts(records) == [datetime(2024, 7, 7, 8, 30)]


def test_a_day_beyond_12_after_the_sample_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmet.mobility.records.dates._SAMPLE", 2)
    path = write(tmp_path / "a.csv", [date(2024, 2, 1), date(2024, 2, 2), date(2024, 2, 20)], "%d/%m/%Y")
    with read_records(path, timezone="UTC") as records:
        assert starts(records)[0] == datetime(2024, 2, 1, 8, 30)


def test_an_unknown_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="date_order: expected mdy, dmy, ymd"):
        read_records(write(tmp_path / "a.csv", [date(2024, 2, 1)], "%d/%m/%Y"), timezone="UTC", date_order="ydm")


def test_the_rows_of_a_concluded_order_are_counted_once(tmp_path: Path) -> None:
    rows = [f"{day:02}/07/2021 08:30,{day:02}/07/2021 08:40,a" for day in range(1, 8)]
    (tmp_path / "a.csv").write_text("started_at,ended_at,start_station_id\n" + "\n".join(rows) + "\n")
    with read_records(tmp_path / "a.csv", timezone="UTC") as records:
        noted = records.quality.query("reason == 'order of day and month concluded'").iloc[0]
    assert (noted["rows"], noted["share"]) == (7, 1.0)
