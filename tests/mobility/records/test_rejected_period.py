"""Rejected rows and the chosen period: rows outside it are noted, and refuse nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet._exceptions import InputError
from unmet.mobility.panel import build_panel
from unmet.mobility.records.quality import QualityLog, check_rejected

ZONE = "America/New_York"


def trips(rows: list[tuple[str | None, str, str]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "ride_id": [row[2] for row in rows],
            "started_at": [row[0] for row in rows],
            "ended_at": [row[1] for row in rows],
            "start_station_id": "a",
            "end_station_id": "a",
        }
    )


def ride(day: int, number: int, wrong: bool = False) -> tuple[str, str, str]:
    begin, end = f"2021-07-{day:02d} {number:02d}:30", f"2021-07-{day:02d} {number:02d}:40"
    return (end, begin, f"{day}/{number}") if wrong else (begin, end, f"{day}/{number}")


# The first two days are bad (half of all trips end before they start), the last two are fine but for one.
BAD = [ride(day, n, wrong=n % 2 == 0) for day in (1, 2) for n in range(10)]
GOOD = [ride(day, n, wrong=(day, n) == (3, 0)) for day in (3, 4) for n in range(10)]


def status(seconds: bool) -> pd.DataFrame:
    """A record an hour for four days; on the first two days every second one has no count."""
    times = pd.date_range("2021-07-01", periods=96, freq="h", tz=ZONE)
    bikes = np.where((times.day <= 2) & (times.hour % 2 == 0), np.nan, 3.0)
    at = times.as_unit("s").astype("int64") if seconds else times.tz_localize(None).astype(str)
    return pd.DataFrame(
        {"station_id": "a", "last_reported": at, "num_bikes_available": bikes, "num_docks_available": 5}
    )


def by_reason(quality: pd.DataFrame, source: str) -> dict[str, tuple[str, int, float]]:
    rows = quality[quality["source"] == source].itertuples()
    return {row.reason: (row.action, row.rows, round(row.share, 6)) for row in rows}


def test_trips_rejected_outside_the_period_are_noted_and_shares_are_of_the_rows_within():
    found = by_reason(build_panel(trips(BAD + GOOD), timezone=ZONE, start="2021-07-03").quality, "trips")
    assert found["read"] == ("noted", 40, 1.0)
    assert found["end before start"] == ("rejected", 1, 1 / 20)
    assert found["end before start, outside the chosen period"] == ("noted", 10, 10 / 40)


@pytest.mark.parametrize("seconds", [True, False])
def test_status_likewise(seconds):
    result = build_panel(status=status(seconds), timezone=ZONE, start="2021-07-03", end="2021-07-05")
    found = by_reason(result.quality, "status")
    assert "missing or unreadable count" not in found
    assert found["missing or unreadable count, outside the chosen period"] == ("noted", 24, 24 / 96)
    # What stood before the period still tells what there was at its start.
    assert result.panel["available_minutes"].iloc[0] == 60


def test_the_whole_file_is_refused_and_its_good_part_is_not():
    with pytest.raises(InputError, match=r"11 of 40 rows \(27\.5%\) were rejected"):
        build_panel(trips(BAD + GOOD), timezone=ZONE)
    build_panel(trips(BAD + GOOD), timezone=ZONE, start="2021-07-03")


def test_a_bad_part_of_a_good_file_is_refused():
    many = [ride(day, n) for day in range(3, 28) for n in range(10)]
    build_panel(trips(BAD + many), timezone=ZONE)
    with pytest.raises(InputError, match=r"10 rows \(50\.0% of those in the chosen period\) were rejected"):
        build_panel(trips(BAD + many), timezone=ZONE, end="2021-07-03")


def test_duplicates_outside_the_period_are_told_apart_too():
    twice = trips([*GOOD[1:10], *GOOD[1:10], *GOOD[10:]])
    found = by_reason(build_panel(twice, timezone=ZONE, start="2021-07-04").quality, "trips")
    assert "duplicate" not in found
    assert found["duplicate, outside the chosen period"][:2] == ("noted", 9)
    records = status(seconds=True).dropna()
    doubled = pd.concat([records, records[: len(records) // 3]])
    found = by_reason(build_panel(status=doubled, timezone=ZONE, start="2021-07-04").quality, "status")
    assert "repeated record" not in found
    found = by_reason(build_panel(status=doubled, timezone=ZONE, end="2021-07-02").quality, "status")
    assert found["repeated record"] == ("noted", 12, 12 / 24)
    doubled.iloc[len(records) :, doubled.columns.get_loc("num_bikes_available")] += 1
    found = by_reason(build_panel(status=doubled, timezone=ZONE, end="2021-07-02", force=True).quality, "status")
    assert found["duplicate"] == ("rejected", 12, 12 / 24)


def test_a_row_without_a_time_may_be_of_any():
    rows = [*BAD, *GOOD, (None, "2021-07-04 10:10", "x"), ("never", "2021-07-04 10:10", "y")]
    found = by_reason(build_panel(trips(rows), timezone=ZONE, start="2021-07-03").quality, "trips")
    assert found["missing time"] == ("rejected", 1, round(1 / 42, 6))
    assert found["impossible time"] == ("rejected", 1, round(1 / 42, 6))


def test_rejected_shares_add_up_over_reasons():
    log = QualityLog()
    log.total("trips", 100)
    log.add("trips", "duplicate", "rejected", 15)
    check_rejected(log.frame(), 0.2)
    log.add("trips", "unknown station", "rejected", 6)
    with pytest.raises(InputError, match=r"21 of 100 rows \(21\.0%\)(.|\n)*duplicate: 15\n  unknown station: 6"):
        check_rejected(log.frame(), 0.2)
