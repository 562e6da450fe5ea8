"""The real data, as far as reading goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from unmet.mobility.records import read_records


@pytest.mark.data
def test_jersey_city_trips_and_status_meet_at_the_same_stations(data_dir: Path) -> None:
    folder = data_dir / "citibike_jersey_city"
    with read_records(
        folder / "trips_2015-09_2021-04.parquet",
        folder / "station_status_2020-05_2022-06.parquet",
        folder / "stations.csv",
        timezone="America/New_York",
    ) as records:
        quality = records.quality.set_index(["source", "reason"])
        trips, overlap = records.connection.execute(
            "SELECT count(*), count(*) FILTER (started_at >= '2020-11-01 04:00') FROM trips"
        ).fetchall()[0]
        stations = records.connection.execute(
            "SELECT count(DISTINCT start_station) FROM trips JOIN stations ON start_station = station"
        ).fetchall()
        status = records.connection.execute("SELECT count(*), count(DISTINCT station) FROM status").fetchall()
    assert quality.loc[("trips", "read"), "rows"] == 543_523
    assert trips + quality.xs("trips").query("action == 'rejected'")["rows"].sum() == 543_523
    assert "legacy_id" in quality.loc[("trips", "station ids matched"), "detail"]
    assert "short_name" in quality.loc[("trips", "station ids matched"), "detail"]
    # Four trips end "before" they start because the clock went back meanwhile.
    assert quality.loc[("trips", "end before start"), "rows"] == 20 - 4
    assert quality.loc[("trips", "missing end station"), "rows"] <= 237
    # Since November 2020: 90,371 rows, 16 of which end before they start and 3 are to or from a depot.
    assert overlap == 90_371 - 16 - 3
    assert stations == [(51,)]  # two opened later
    assert status == [(1_421_009 - quality.loc[("status", "duplicate"), "rows"], 53)]


@pytest.mark.data
def test_the_east_village_log_is_read_as_it_stands(data_dir: Path) -> None:
    folder = data_dir / "citibike_east_village"
    with read_records(
        status=folder / "station_status_2020-05_2022-06.parquet",
        stations=folder / "stations.csv",
        timezone="America/New_York",
        memory="500MB",
    ) as records:
        found = records.connection.execute(
            'SELECT count(*), sum(available), min(epoch("at"))::BIGINT, count(DISTINCT ix) FROM status'
        ).fetchall()
    # One record of the log is a duplicate (same station and second).
    plain = 5_227_771, 135_256_653, 1_590_200_263, 64
    assert found == [plain]
