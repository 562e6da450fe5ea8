"""What the panel promises, one promise at a time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from unmet import _exceptions
from unmet.execution import serially
from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import PANEL_COLUMNS, build_panel, read_panel, write_panel
from unmet.mobility.panel.options import PanelOptions

ZONE = "America/New_York"


def log(*rows, station="a"):
    """Status: rows of (local time, available) or (..., {column: value})."""
    frame = pd.DataFrame(
        {
            "station_id": [station] * len(rows),
            "last_reported": pd.to_datetime([f"2021-07-01 {row[0]}" for row in rows]),
            "num_bikes_available": [row[1] for row in rows],
            "num_bikes_disabled": 0,
            "num_docks_available": 5,
            "is_installed": True,
            "is_renting": True,
        }
    )
    for i, row in enumerate(rows):
        for column, value in (row[2] if len(row) > 2 else {}).items():
            frame.loc[i, column] = value
    return frame


def rides(*rows):
    return pd.DataFrame(
        {
            "ride_id": [str(i) for i in range(len(rows))],
            "started_at": [f"2021-07-01 {row[0]}" for row in rows],
            "ended_at": [f"2021-07-01 {row[1]}" for row in rows],
            "start_station_id": [row[2] for row in rows],
            "end_station_id": [row[3] for row in rows],
        }
    )


def places(**where):
    return pd.DataFrame(
        {
            "station_id": list(where),
            "name": list(where),
            "lat": [p[0] for p in where.values()],
            "lon": -74.0,
            "capacity": [p[1] for p in where.values()],
        }
    )


def hour(frame, start):
    return frame[frame["start_local"] == f"2021-07-01 {start}"].iloc[0]


def test_the_columns_are_those_of_the_contract():
    frame = build_panel(rides(("08:10", "08:20", "a", "b")), log(("08:00", 1), ("08:30", 2)), timezone=ZONE).panel
    assert tuple(frame.columns) == PANEL_COLUMNS
    assert frame["start"].dtype == "datetime64[us, UTC]"
    inferred = build_panel(status=log(("08:00", 1), ("08:30", 2)), timezone=ZONE).panel
    assert tuple(inferred.columns) == (*PANEL_COLUMNS, "rebalanced_out", "rebalanced_in", "cancelled")


def test_a_closed_station_is_not_a_stockout_and_its_vanished_vehicles_are_not_pickups():
    closing = {"is_renting": False, "num_bikes_disabled": 9}
    frame = build_panel(status=log(("08:00", 9), ("08:30", 0, closing), ("10:00", 9)), timezone=ZONE).panel
    first, second = hour(frame, "08:00"), hour(frame, "09:00")
    assert (first["available_minutes"], first["stockout_minutes"], first["closed_minutes"]) == (30, 0, 30)
    assert second["closed_minutes"] == 60
    assert not frame["censored"].any()
    assert frame["observed"].sum() == frame["returns"].sum() == 0
    assert frame["rebalanced_out"].sum() == 0


def test_a_dead_station_with_neither_vehicle_nor_dock_is_closed_but_one_that_never_has_docks_is_empty():
    no_dock = {"num_docks_available": 0}
    dead = build_panel(status=log(("08:00", 2), ("08:20", 0, no_dock), ("09:00", 1)), timezone=ZONE)
    assert hour(dead.panel, "08:00")["closed_minutes"] == 40
    dockless = log(("08:00", 2, no_dock), ("08:20", 0, no_dock), ("09:00", 1, no_dock))
    assert hour(build_panel(status=dockless, timezone=ZONE).panel, "08:00")["stockout_minutes"] == 40


def test_vehicles_that_turn_disabled_are_not_pickups():
    status = log(("08:00", 6), ("08:10", 3, {"num_bikes_disabled": 2}), ("08:20", 5))
    frame = build_panel(status=status, timezone=ZONE).panel
    assert hour(frame, "08:00")["observed"] == 1  # three less, two of them broken
    assert hour(frame, "08:00")["returns"] == 0  # two more, both mended


def test_many_vehicles_at_once_are_a_van_and_shown_apart():
    status = log(("08:00", 20), ("08:10", 11), ("08:20", 8), ("08:30", 18))
    frame = build_panel(status=status, timezone=ZONE, rebalancing=8).panel
    row = hour(frame, "08:00")
    assert (row["observed"], row["returns"], row["rebalanced_out"], row["rebalanced_in"]) == (3, 0, 9, 10)


def test_a_hub_is_out_only_when_all_its_open_stations_are():
    a = log(("08:00", 3), ("08:10", 0), ("09:00", 0))
    b = log(("08:00", 2), ("08:30", 0), ("08:50", 0, {"is_renting": False}), ("09:00", 1), station="b")
    status = pd.concat([a, b])
    frame = build_panel(
        status=status, stations=places(a=(40.7, 9), b=(40.7005, 9)), timezone=ZONE, zones="superhubs:200m"
    ).panel
    row = hour(frame, "08:00")
    assert (row["available_minutes"], row["stockout_minutes"], row["closed_minutes"]) == (30, 30, 0)
    assert row["supply_mean"] == pytest.approx((5 * 10 + 2 * 20) / 60)


def test_a_station_that_came_later_does_not_hide_the_stockouts_of_its_hub():
    status = pd.concat([log(("08:00", 1), ("08:15", 0), ("10:00", 1)), log(("09:30", 4), ("10:00", 4), station="b")])
    frame = build_panel(
        status=status, stations=places(a=(40.7, 9), b=(40.7005, 9)), timezone=ZONE, zones="superhubs:200m"
    ).panel
    assert hour(frame, "08:00")["stockout_minutes"] == 45
    assert hour(frame, "09:00")["stockout_minutes"] == 30


def test_with_trips_observed_are_the_trips_and_outside_them_pickups_are_inferred():
    status = log(("00:00", 5), ("08:10", 4), ("20:00", 2))
    trips = rides(("08:05", "08:30", "a", "a"), ("08:50", "09:10", "a", "a"))
    frame = build_panel(trips, status, timezone=ZONE).panel
    assert hour(frame, "08:00")["observed"] == 2
    assert hour(frame, "08:00")["evidence"] == "status+trips"
    assert hour(frame, "09:00")["evidence"] == "status"
    assert hour(frame, "20:00")["observed"] == 2


def test_a_bin_with_no_data_is_there_with_unknown_minutes():
    status = log(*[(f"{h:02d}:{m:02d}", (h + m) % 5) for h in (8, 9, 15, 16) for m in range(60)])
    frame = build_panel(status=status, timezone=ZONE).panel
    assert len(frame) == 9
    gap = frame[(frame["start_local"] >= "2021-07-01 10:00") & (frame["start_local"] < "2021-07-01 15:00")]
    assert gap["unknown_minutes"].tolist() == [60] * 5
    assert gap["observed"].isna().all()
    assert gap["evidence"].tolist() == ["none"] * 5


def test_a_poll_that_lists_all_stations_is_told_from_a_log_of_changes():
    polled = pd.concat([log(*[(f"08:{m:02d}", 3) for m in range(0, 60, 5)], station=s) for s in "abcdef"])
    assert build_panel(status=polled, timezone=ZONE).summary["status"] == "polled snapshots"
    # A station that is left out of more than three polls, and of half an hour, is unknown.
    lost = polled[~((polled["station_id"] == "a") & polled["last_reported"].dt.minute.between(10, 45))]
    frame = build_panel(status=lost, timezone=ZONE).panel
    assert hour(frame[frame["zone"] == "a"], "08:00")["unknown_minutes"] == 44 + 4
    irregular = np.cumsum([0, 1, 3, 8, 2, 60, 5, 1, 20, 3, 6, 12, 1, 45, 9])
    changes = pd.concat(
        [
            log(*[(f"{8 + m // 60:02d}:{m % 60:02d}", m % 4) for m in 9 * i + irregular], station=s)
            for i, s in enumerate("abcd")
        ]
    )
    assert build_panel(status=changes, timezone=ZONE).summary["status"] == "change log"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("any", [True, True]),
        ("minutes:20", [False, True]),
        ("share:0.5", [False, True]),
        ("minutes:31", [False, False]),
    ],
)
def test_censored_by_rule(rule, expected):
    status = log(("08:00", 1), ("08:50", 0), ("09:00", 1), ("09:30", 0), ("10:00", 1))
    frame = build_panel(status=status, timezone=ZONE, censored_rule=rule).panel
    assert frame["censored"].tolist()[:2] == expected


def test_the_share_is_of_the_minutes_in_which_the_zone_was_open():
    status = log(("08:00", 1), ("08:10", 0), ("08:20", 0, {"is_renting": False}), ("09:00", 1))
    assert hour(build_panel(status=status, timezone=ZONE, censored_rule="share:0.5").panel, "08:00")["censored"]


def test_without_status_supply_is_netted_and_marked_as_weaker():
    trips = rides(
        ("08:00", "08:05", "a", "b"),
        ("08:10", "08:15", "a", "b"),
        ("08:20", "08:25", "a", "b"),
        ("09:30", "09:40", "b", "a"),
        ("10:00", "10:10", "b", "b"),
    )
    result = build_panel(trips, stations=places(a=(40.7, 2), b=(40.8, 20)), timezone=ZONE)
    a = result.panel[result.panel["zone"] == "a"]
    # Two docks: after two pickups it is empty, whatever it held; the third shows a van. A return fills it at 9:40.
    assert hour(a, "08:00")["stockout_minutes"] == 50
    assert hour(a, "09:00")[["stockout_minutes", "available_minutes"]].tolist() == [40, 20]
    assert a["evidence"].tolist() == ["netted"] * 3
    assert result.summary["supply_from"] == "trips, netted"


def test_a_trip_without_an_end_does_not_empty_its_station_for_ever():
    back_and_forth = [(f"{h:02d}:{m:02d}", f"{h:02d}:{m + 5:02d}", *ab) for h in (8, 9, 10) for m, ab in _TO_AND_FRO]
    trips, stations = rides(*back_and_forth), places(a=(40.7, 5), b=(40.8, 5))
    trips.loc[[0], "end_station_id"] = None
    result = build_panel(trips, stations=stations, timezone=ZONE)
    whole = build_panel(trips.drop(index=0), stations=stations, timezone=ZONE)
    columns = ["stockout_minutes", "unknown_minutes", "available_minutes"]
    later = slice("2021-07-01 09:00", None)
    one, other = (r.panel.set_index("start_local").sort_index()[columns].loc[later] for r in (result, whole))
    pd.testing.assert_frame_equal(one, other)
    assert result.panel["observed"].sum() == len(trips)
    assert result.quality.set_index("reason").loc["an end is not known", "rows"] == 1
    assert not result.summary["remarks"]


_TO_AND_FRO = [(m, ("a", "b") if m % 20 < 10 else ("b", "a")) for m in range(0, 50, 2)]


@pytest.mark.parametrize("lost", ["end_station_id", "ended_at"])
@pytest.mark.parametrize("every", [1, 5])
def test_supply_is_not_netted_from_trips_of_which_many_have_no_end(lost, every):
    trips = rides(*[(f"08:{m:02d}", f"08:{m + 5:02d}", *ab) for m, ab in _TO_AND_FRO])
    trips.loc[::every, lost] = None
    result = build_panel(trips, stations=places(a=(40.7, 5), b=(40.8, 5)), timezone=ZONE, force=True)
    assert not {"empty", "vehicles"} & set(result.summary["reasons"])
    assert set(result.panel["evidence"]) == {"trips"}
    assert "supply is not computed" in result.summary["remarks"][0]
    failures = LatentDemand("weekly-mean", draws=20).fit(result, executor=serially).failures
    assert set(failures) == {"a", "b"}
    said = r"pickups are recorded, but its supply is unknown.*nearly all trips have stations and times of both ends"
    assert all(re.search(said, reason) for reason in failures.values())


@pytest.mark.parametrize("back", [True, False])
def test_trips_that_end_away_from_stations_are_netted_if_as_many_come_back(back):
    trips = rides(*[(f"08:{m:02d}", f"08:{m + 5:02d}", *ab) for m, ab in _TO_AND_FRO])
    trips = trips.assign(start_lat=40.7, start_lng=-74.0, end_lat=40.8, end_lng=-74.0)
    trips.loc[::5, "end_station_id"] = None
    if back:
        trips.loc[1::5, "start_station_id"] = None
    result = build_panel(trips, stations=places(a=(40.7, 5), b=(40.8, 5)), timezone=ZONE, force=True)
    assert set(result.panel["evidence"]) == {"netted" if back else "trips"}


def test_trips_without_capacity_leave_supply_unknown():
    frame = build_panel(rides(("08:00", "08:05", "a", "b")), timezone=ZONE).panel
    assert frame["unknown_minutes"].tolist() == frame["minutes"].tolist()
    assert set(frame["evidence"]) == {"trips"}
    assert frame["observed"].sum() == 1
    reasons = build_panel(rides(("08:00", "08:05", "a", "b")), timezone=ZONE).summary["reasons"]
    assert reasons["undetermined"] == 2  # each station for the minute that the trips cover


def test_outside_the_opening_hours_a_zone_is_closed():
    frame = build_panel(status=log(("07:00", 0), ("10:00", 2)), timezone=ZONE, hours="08:30-09:30").panel
    assert frame["closed_minutes"].tolist()[:3] == [60, 30, 30]
    assert frame["stockout_minutes"].tolist()[:3] == [0, 30, 30]


def test_trips_outside_the_zones_or_the_period_are_counted_and_not_lost_in_silence(tmp_path):
    ring = [[-75, 40.6], [-73, 40.6], [-73, 40.75], [-75, 40.75], [-75, 40.6]]
    document = {"features": [{"properties": {"name": "south"}, "geometry": {"type": "Polygon", "coordinates": [ring]}}]}
    path = tmp_path / "zones.geojson"
    path.write_text(json.dumps(document))
    trips = rides(("08:00", "08:05", "a", "b"), ("08:10", "08:15", "b", "a"), ("11:10", "11:15", "a", "a"))
    result = build_panel(
        trips, stations=places(a=(40.7, 5), b=(40.8, 5)), timezone=ZONE, zones=str(path), end="2021-07-01 09:00"
    )
    assert result.panel["observed"].sum() == result.summary["trips_used"] == 1
    found = result.quality.set_index("reason")["rows"]
    assert (found["start in no zone"], found["outside the panel's period"]) == (1, 1)


def test_trips_without_a_station_are_placed_by_their_coordinates():
    pytest.importorskip("h3")
    trips = rides(("08:00", "08:05", None, None), ("08:10", "08:15", None, None))
    trips = trips.assign(start_lat=[40.7, 40.9], start_lng=-74.0, end_lat=[40.9, None], end_lng=[-74.0, None])
    frame = build_panel(trips, timezone=ZONE, zones="h3:8").panel
    assert sorted(frame["observed"]) == [1, 1]
    assert sorted(frame["returns"]) == [0, 1]


def test_trips_that_name_no_station_ask_for_zones_by_place():
    trips = rides(("08:00", "08:10", "a", "a")).drop(columns=["start_station_id", "end_station_id"])
    trips = trips.assign(start_lat=40.71, start_lng=-74.0)
    with pytest.raises(_exceptions.InputError, match=r"no record names a station.*--zones h3:9"):
        build_panel(trips, timezone=ZONE)


def test_trips_with_coordinates_alone_are_rejected_if_zones_are_stations():
    trips = rides(("08:00", "08:10", "a", "a"), ("08:10", "08:20", "a", "a"))
    trips = trips.assign(start_lat=40.71, start_lng=-74.0, start_station_id=["a", None])
    with pytest.raises(_exceptions.InputError, match=r"no station, only coordinates: 1 \(these place a trip if"):
        build_panel(trips, timezone=ZONE)
    assert build_panel(trips, timezone=ZONE, force=True).panel["observed"].sum() == 1


def test_trips_of_stations_outside_the_super_hubs_are_noted_and_not_rejected(tmp_path):
    """They were called trips without a station, and refused if they were many."""
    points = tmp_path / "points.csv"
    points.write_text("name,lat,lon\ncentre,40.7,-74.0\n")
    trips = rides(("08:00", "08:05", "a", "a"), ("08:10", "08:15", "b", "b"))
    stations = places(a=(40.7, 5), b=(40.8, 5))
    result = build_panel(trips, stations=stations, timezone=ZONE, zones=f"superhubs:{points}:300m")
    assert result.panel["observed"].sum() == 1
    assert result.quality.set_index("reason")["rows"]["start in no zone"] == 1


def test_stations_that_moved_are_reported():
    trips = rides(("08:00", "08:05", "a", "b"), ("08:10", "08:15", "a", "b"), ("08:20", "08:25", "b", "b"))
    trips["started_at"] = ["2021-06-01 08:00", "2021-07-01 08:00", "2021-07-01 08:00"]
    trips["ended_at"] = ["2021-06-01 08:05", "2021-07-01 08:15", "2021-07-01 08:25"]
    trips = trips.assign(start_lat=[40.7, 40.703, 40.8], start_lng=-74.0)
    found = build_panel(trips, timezone=ZONE, every="1d").quality.set_index("reason")
    assert found["rows"]["station moved"] == 1
    assert found["detail"]["station moved"].startswith("a:")


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.from_pandas, lambda f: pl.from_pandas(f).to_arrow()])
def test_frames_of_any_kind_give_the_same_panel_and_stay_as_they_are(kind):
    status, trips = log(("08:00", 1), ("08:30", 0), ("09:00", 2)), rides(("08:10", "08:20", "a", "a"))
    expected = build_panel(trips, status, timezone=ZONE).panel
    given = kind(trips), kind(status)
    before = [repr(frame) for frame in given]
    pd.testing.assert_frame_equal(build_panel(*given, timezone=ZONE).panel, expected)
    assert [repr(frame) for frame in given] == before


def test_a_written_panel_comes_back_with_all_that_travels_with_it(tmp_path):
    status = pd.concat([log(("08:00", 1), ("08:30", 0), ("09:00", 2)), log(("08:00", 3), station="quo\"te's")])
    path = tmp_path / "panel.parquet"
    written = write_panel(path, None, status, timezone=ZONE)
    found, expected = read_panel(path), build_panel(status=status, timezone=ZONE)
    pd.testing.assert_frame_equal(found.panel, expected.panel)
    pd.testing.assert_frame_equal(found.quality, expected.quality)
    pd.testing.assert_frame_equal(found.reasons, expected.reasons)
    assert found.zones["stations"].tolist() == expected.zones["stations"].tolist()
    assert found.summary == expected.summary == written.summary
    assert [p.name for p in tmp_path.iterdir()] == ["panel.parquet"]


def test_what_is_no_panel_is_refused(tmp_path):
    path = tmp_path / "other.parquet"
    pl.DataFrame({"start": [1]}).write_parquet(path)
    with pytest.raises(_exceptions.FileFormatError):
        read_panel(path)
    path.write_text("nonsense")
    with pytest.raises(_exceptions.FileFormatError):
        read_panel(path)
    with pytest.raises(_exceptions.InputError, match="no file"):
        read_panel(tmp_path / "nothing.parquet")


def test_duplicates_count_towards_what_may_be_rejected():
    status = pd.concat([log(("08:00", 1), ("08:30", 0)), log(("08:00", 2))])
    with pytest.raises(_exceptions.InputError, match="duplicate: 1"):
        build_panel(status=status, timezone=ZONE)
    result = build_panel(status=status, timezone=ZONE, force=True)
    assert result.quality.set_index("reason")["rows"]["duplicate"] == 1
    assert hour(result.panel, "08:00")["supply_mean"] == pytest.approx(2 * 30 / 31)  # the later of the two holds


def test_a_failed_build_leaves_nothing_behind(tmp_path):
    path = tmp_path / "panel.parquet"
    path.write_text("of yesterday")
    with pytest.raises(_exceptions.InputError):
        write_panel(path, None, log(("08:00", 5000)), timezone=ZONE)
    assert [p.name for p in tmp_path.iterdir()] == ["panel.parquet"]
    assert path.read_text() == "of yesterday"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": "1min"}, "5 minutes to a week"),
        ({"censored_rule": "sometimes"}, "any, minutes:10"),
        ({"rebalancing": 1}, "at least 2"),
        ({"memory": "plenty"}, "2GB"),
        ({"hours": "all day"}, "06:00-23:00"),
        ({"start": "someday"}, "start: expected"),
        ({"memory": "1KB"}, "expected 100MB to 1000TB"),
        ({"start": "2021-07-02", "end": "2021-07-01"}, "start '2021-07-02', end '2021-07-01'"),
        ({"start": "2030-01-01"}, "period has no record.*records run from 2021-07-01 08:00"),
        ({"end": "2021-06-01"}, "period has no record"),
        ({"start": "2021-01-01", "end": "2091-07-02"}, "more than a year"),
        ({"zones": "everywhere"}, "zones: expected"),
        ({"timezone": "Mars/Base"}, "Mars/Base"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_what_was_expected(options, message):
    with pytest.raises(_exceptions.InputError, match=message):
        build_panel(status=log(("08:00", 1)), **({"timezone": ZONE} | options))


def test_old_records_and_many_chunks_give_the_same_panel(monkeypatch, tmp_path):
    from unmet.mobility.supply import status_log as statuslog

    status = pd.concat([log(("08:00", i % 3), ("08:30", 0), ("09:00", 2), station=f"s{i}") for i in range(9)])
    expected = build_panel(status=status, timezone=ZONE)
    monkeypatch.setattr(statuslog, "_BYTES_PER_RECORD", 2_000_000_000 // 7)
    monkeypatch.setattr(statuslog, "_BLOCK", 4)
    monkeypatch.setattr(statuslog, "_ORIGIN", 2_000_000_000)
    pd.testing.assert_frame_equal(build_panel(status=status, timezone=ZONE, memory="2GB").panel, expected.panel)
    old = status.assign(last_reported=status["last_reported"] - pd.Timedelta(days=365 * 25))
    frame = build_panel(status=old, timezone=ZONE).panel
    assert frame["start_local"].min().year == 1996
    assert frame["stockout_minutes"].tolist() == expected.panel["stockout_minutes"].tolist()


def test_the_temporary_folder_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    build_panel(status=log(("08:00", 1)), timezone=ZONE)
    assert not list(Path(tmp_path).iterdir())


def test_a_repeated_record_between_two_moves_is_a_pickup_and_a_return_that_cancelled_out():
    busy = log(("08:00", 5), ("08:10", 4), ("08:20", 4), ("08:40", 6), ("11:00", 6), ("14:00", 5))
    frame = build_panel(status=busy, timezone=ZONE).panel
    assert hour(frame, "08:00")[["observed", "returns"]].tolist() == [2, 3]
    assert hour(frame, "11:00")[["observed", "returns"]].tolist() == [0, 0]  # no move within 20 minutes
    late = log(("08:00", 5), ("08:10", 4), ("08:20", 4), ("08:41", 6))
    assert hour(build_panel(status=late, timezone=ZONE).panel, "08:00")["observed"] == 1


def test_a_repeated_record_of_a_poll_says_nothing():
    polled = pd.concat([log(*[(f"08:{m:02d}", 3 + m // 20) for m in range(0, 60, 5)], station=s) for s in "abc"])
    result = build_panel(status=polled, timezone=ZONE)
    assert result.summary["status"] == "polled snapshots"
    assert (result.panel["observed"] == 0).all()


def test_trips_and_status_whose_ids_are_of_different_kinds_are_refused_with_what_to_do():
    status = pd.concat([log(("08:00", 3), ("08:30", 2), station=s) for s in ("uuid-1", "uuid-2")])
    trips = rides(("08:10", "08:20", "JC1", "JC2"), ("08:12", "08:20", "JC2", "JC1"))
    with pytest.raises(_exceptions.InputError, match=r"0 of 2 trips.*'JC1'.*'uuid-1'.*--stations"):
        build_panel(trips, status, timezone=ZONE)
    forced = build_panel(trips, status, timezone=ZONE, force=True)
    assert forced.quality.set_index("reason")["rows"]["station without status"] == 2
    table = pd.DataFrame({"station_id": ["uuid-1", "uuid-2"], "short_name": ["JC1", "JC2"]})
    assert build_panel(trips, status, table, timezone=ZONE).panel["observed"].sum() == 2


def test_without_a_table_of_stations_nothing_claims_to_have_matched():
    result = build_panel(rides(("08:10", "08:20", "a", "b")), log(("08:00", 1), ("08:30", 2)), timezone=ZONE)
    assert "station ids matched" not in set(result.quality["reason"])


def test_an_outage_outside_the_period_is_not_counted():
    minutes = [(f"{h:02d}:{m:02d}", (h + m) % 5) for h in (8, 9, 15, 16) for m in range(60)]
    status = log(*minutes)
    assert build_panel(status=status, timezone=ZONE).summary["feed_outages"] == 1
    late = build_panel(status=status, timezone=ZONE, start="2021-07-01 15:00")
    assert late.summary["feed_outages"] == 0


def test_a_zone_file_may_be_a_single_feature(tmp_path):
    ring = [[-75, 40.6], [-73, 40.6], [-73, 40.75], [-75, 40.75], [-75, 40.6]]
    geometry = {"type": "Polygon", "coordinates": [ring]}
    for document in ({"type": "Feature", "properties": {"name": "south"}, "geometry": geometry}, geometry):
        path = tmp_path / "zones.geojson"
        path.write_text(json.dumps(document))
        result = build_panel(status=log(("08:00", 1)), stations=places(a=(40.7, 5)), timezone=ZONE, zones=str(path))
        assert len(result.zones) == 1


def test_a_folder_that_allows_no_writing_is_named_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(_exceptions.InputError, match="no permission to write into") as error:
        write_panel(tmp_path / "panel.parquet", None, log(("08:00", 1)), timezone=ZONE)
    assert ".partial" not in str(error.value)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("every", 60, "text"),
        ("zones", None, "text"),
        ("timezone", None, "text"),
        ("areas", 5, "text"),
        ("keep", ["a"], "text"),
        ("rebalancing", "8", "a whole number"),
        ("rebalancing", 2.5, "a whole number"),
        ("rebalancing", float("nan"), "a whole number"),
        ("max_rejected", "0.1", "a number"),
        ("max_rejected", float("nan"), "a number"),
        ("force", "no", "True or False"),  # which Python takes for true
        ("force", None, "True or False"),
        ("mapping", [1], "a mapping of names"),
        ("mapping", {1: "a"}, "a mapping of names"),
        ("headers", {"started_at": 5}, "a mapping of names"),
    ],
)
def test_an_option_of_another_kind_is_named(option, value, expected):
    with pytest.raises(_exceptions.InputError, match=f"^{option}: expected {expected}"):
        PanelOptions(**{"timezone": "Europe/Oslo", option: value})


@pytest.mark.parametrize("source", ["trips", "status", "stations"])
def test_records_that_are_no_path_and_no_table_are_named(source):
    with pytest.raises(_exceptions.InputError, match=f"{source}: expected a path, .* got int"):
        build_panel(**{"trips": None if source == "status" else "trips.csv", source: 5}, timezone="Europe/Oslo")
