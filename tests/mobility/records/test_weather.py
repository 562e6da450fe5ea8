from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.records import Records, read_records

TRIPS = pd.DataFrame({"started_at": ["2021-01-01 08:00"], "start_station_id": ["a"]})


def read(weather: object, timezone: str = "America/New_York") -> Records:
    return read_records(TRIPS, weather=weather, timezone=timezone)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "rows", "first", "columns"),
    [
        ("central_park_2009-01_2016-12.csv", 2922, datetime(2009, 1, 1, 5), ["min_temp", "snow_depth"]),
        ("newark_airport_2016.csv", 366, datetime(2016, 1, 1, 5), ["AWND", "TMAX"]),
        ("nyc_2017-2018.csv", 730, datetime(2017, 1, 2, 1), ["temprature"]),
        ("nyc_2020-01_2021-07.csv", 559, datetime(2020, 1, 1, 5), ["Precipitation_per_day(mm)"]),
    ],
)
def test_the_weather_files_are_read(data_dir: Path, name: str, rows: int, first: datetime, columns: list[str]) -> None:
    lines = len((data_dir / "weather" / name).read_text().strip().splitlines()) - 1
    with read(data_dir / "weather" / name) as records:
        frame = records.connection.execute('SELECT * FROM weather ORDER BY "at"').df()
        rejected = records.quality.query("source == 'weather' and action == 'rejected'")["rows"].sum()
    assert len(frame) + rejected == lines
    assert abs(len(frame) - rows) <= 1
    assert frame["at"].iloc[0] == first
    assert set(columns) <= set(frame.columns)
    assert "NAME" not in frame.columns


@pytest.mark.data
def test_wrong_units_and_missing_codes_in_the_weather_files_are_reported(data_dir: Path) -> None:
    with read(data_dir / "weather" / "nyc_2020-01_2021-07.csv") as records:
        assert (records.quality["reason"] == "units disagree").sum() == 3
    with read(data_dir / "weather" / "central_park_2009-01_2016-12.csv") as records:
        codes = records.quality.query("reason == 'code for a missing value'")
        assert codes["detail"].str.startswith("snow_depth: 999.9").any()
        assert not codes["detail"].str.startswith("pressure: 999.9").any()
        largest = records.connection.execute("SELECT max(snow_depth), max(pressure) FROM weather").fetchall()
    assert largest[0][0] < 100
    assert largest[0][1] > 1000


def test_readings_of_one_time_are_counted_and_the_last_holds() -> None:
    weather = pd.DataFrame({"date": ["2021-01-01"] + ["2021-01-02"] * 2 + [f"2021-02-{d:02}" for d in range(1, 20)]})
    weather["rain"] = range(len(weather))
    with read(weather) as records:
        found = records.connection.execute('SELECT rain FROM weather ORDER BY "at"').fetchall()
        assert records.quality.query("reason == 'duplicate'")["rows"].to_list() == [1]
    assert found[:2] == [(0,), (2,)]


def test_readings_of_one_time_in_several_files_are_put_together(tmp_path: Path) -> None:
    (tmp_path / "rain.csv").write_text("time,rain\n2021-01-01 08:00,1\n2021-01-01 09:00,2\n")
    (tmp_path / "temperature.csv").write_text("time,temp\n2021-01-01 08:00,5\n2021-01-01 09:00,\n")
    with read(tmp_path) as records:
        found = records.connection.execute('SELECT rain, temp FROM weather ORDER BY "at"').fetchall()
        assert found == [(1.0, 5.0), (2.0, None)]
        assert "duplicate" not in records.quality["reason"].to_list()


def test_a_pressure_of_999_9_is_no_missing_value() -> None:
    weather = pd.DataFrame({"date": ["2021-01-01", "2021-01-02"], "pressure": [999.9, 1013.0]})
    with read(weather) as records:
        assert records.connection.execute("SELECT min(pressure) FROM weather").fetchall() == [(999.9,)]


def test_weather_without_numbers_is_refused() -> None:
    with pytest.raises(FileFormatError, match="no column of numbers"):
        read(pd.DataFrame({"date": ["2021-01-01"], "sky": ["blue"]}))


def test_text_among_numbers_is_left_blank() -> None:
    weather = pd.DataFrame({"date": ["2021-01-01", "2021-01-02", "2021-01-03"], "rain": ["0.5", "T", "1.5"]})
    with read(weather) as records:
        assert records.connection.execute('SELECT rain FROM weather ORDER BY "at"').fetchall() == [
            (0.5,),
            (None,),
            (1.5,),
        ]
        assert records.quality.query("reason == 'unreadable number'")["rows"].to_list() == [1]


@pytest.mark.parametrize("rows", [5, 200])
def test_numbers_that_no_instrument_shows_are_left_blank(rows: int) -> None:
    """Their squares are infinite."""
    hours = pd.date_range("2024-01-01", periods=rows, freq="h")
    frame = pd.DataFrame({"time": hours, "wild": 1e308, "temp": range(rows)})
    frame.loc[::2, "wild"] *= -1
    with read(frame) as records:
        found = records.connection.execute("SELECT count(wild), count(temp) FROM weather").fetchone()
        assert found == (0, rows)
        assert records.quality.query("reason == 'impossible value'")["rows"].to_list() == [rows]


def test_a_reading_far_beyond_all_others_is_left_blank_and_a_storm_is_not() -> None:
    days = pd.date_range("2021-01-01", periods=200, freq="D").strftime("%Y-%m-%d")
    weather = pd.DataFrame({"date": days, "rain": [0.0, 1.0] * 100, "wind": 3.0})
    weather.loc[[7, 9], "rain"] = [40.0, 1e30]
    weather.loc[8, "wind"] = float("-1e9")
    with read(weather) as records:
        found = records.connection.execute("SELECT max(rain), count(rain), min(wind), count(wind) FROM weather")
        assert found.fetchall() == [(40.0, 199, 3.0, 199)]
        assert records.quality.query("reason == 'impossible value'")["rows"].to_list() == [1, 1]


HOURS = pd.date_range("2021-01-01", periods=60, freq="h")


def first_readings(weather: pd.DataFrame) -> list[datetime]:
    with read(weather.assign(rain=range(len(weather)))) as records:
        return [row[0] for row in records.connection.execute('SELECT "at" FROM weather ORDER BY "at"').fetchall()]


@pytest.mark.parametrize("times", [HOURS, HOURS.strftime("%Y-%m-%d %H:%M"), HOURS.tz_localize("America/New_York")])
def test_an_hour_beside_whole_times_is_not_added_to_them(times: pd.Index) -> None:
    found = first_readings(pd.DataFrame({"time": times, "hour": HOURS.hour}))
    assert found == [datetime(2021, 1, 1, 5) + timedelta(hours=i) for i in range(60)]


def test_an_hour_beside_dates_is_from_0_to_24() -> None:
    dates = HOURS.strftime("%Y-%m-%d")
    assert first_readings(pd.DataFrame({"date": dates, "hour": HOURS.hour}))[-1] == datetime(2021, 1, 3, 16)
    assert first_readings(pd.DataFrame({"date": dates, "hour": HOURS.hour + 1}))[-1] == datetime(2021, 1, 3, 17)
    for hour in (HOURS.hour * 100, -HOURS.hour):
        with pytest.raises(InputError, match="missing or impossible time: 57"):
            first_readings(pd.DataFrame({"date": dates, "hour": hour}))


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_in_any_unit_are_read_from_files(tmp_path: Path, unit: str) -> None:
    at = pd.date_range("2024-05-01", periods=3, freq="h", tz="UTC").as_unit(unit)
    pd.DataFrame({"time": at, "temperature": [1.0, 2.0, 3.0]}).to_parquet(tmp_path / "weather.parquet")
    with read(tmp_path / "weather.parquet", "UTC") as records:
        assert records.connection.execute('SELECT count("at") FROM weather').fetchall() == [(3,)]


def test_the_index_that_pandas_stores_in_a_file_is_no_weather(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    times = pd.date_range("2021-01-01", periods=3, freq="h", tz="UTC")
    pd.DataFrame({"time": times, "rain": [0.0, 1.0, 2.0]}, index=[7, 3, 5]).to_parquet(tmp_path / "weather.parquet")
    with read(tmp_path / "weather.parquet") as records:
        assert list(records.connection.execute("SELECT * FROM weather").df().columns) == ["at", "rain"]
