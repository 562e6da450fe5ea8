"""The panel against the brute-force reference, on random feeds with gaps, duplicates, clock changes and closures."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import panel_reference as reference
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from panel_reference import Record, Trip

from unmet.mobility.panel import Panel, build_panel, panel_of
from unmet.mobility.records import Records

ZONE = "America/New_York"
# The clocks go forward at 2:00 on 14 March 2021 and back on 7 November.
DAYS = ["2021-03-13", "2021-11-06", "2021-07-01"]
STATIONS = ["a", "b", "c", "d"]


def status_frame(records: list[Record]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "station_id": [r.station for r in records],
            "last_reported": [r.second for r in records],
            "num_bikes_available": [r.available for r in records],
            "num_bikes_disabled": [r.disabled for r in records],
            "num_docks_available": [r.docks for r in records],
            "is_installed": [r.installed for r in records],
            "is_renting": [r.renting for r in records],
            "is_returning": [r.returning for r in records],
        }
    )


def trip_frame(trips: list[Trip]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "ride_id": [str(i) for i in range(len(trips))],
            "started_at": pd.to_datetime([t.started for t in trips], unit="s", utc=True),
            "ended_at": pd.to_datetime([t.ended for t in trips], unit="s", utc=True),
            "start_station_id": [t.start for t in trips],
            "end_station_id": [t.end for t in trips],
        }
    )


def station_frame(hubs: bool) -> pd.DataFrame:
    """Four stations; with `hubs`, a and b stand 50 m apart, c and d 50 m apart, far from the first two."""
    lat = [40.7, 40.70045, 40.72, 40.72045] if hubs else [40.70, 40.71, 40.72, 40.73]
    return pd.DataFrame({"station_id": STATIONS, "name": STATIONS, "lat": lat, "lon": -74.0, "capacity": [9, 8, 7, 6]})


def build(records: list[Record], trips: list[Trip], every: int, hubs: bool = False, **options: Any) -> Panel:
    """Build from files' frames, through the readers."""
    return build_panel(
        trip_frame(trips) if trips else None,
        status_frame(records),
        station_frame(hubs),
        timezone=ZONE,
        zones="superhubs:200m" if hubs else "stations",
        every=f"{every}min",
        force=True,
        **({"supply": "listed", "keep": "all"} | options),
    )


def build_from_tables(
    folder: Path, records: list[Record], trips: list[Trip], every: int, hubs: bool = False, **options: Any
) -> Panel:
    """Build from the tables that the readers make, without the readers (and their files)."""
    status = status_frame(records)  # (DuckDB reads local frames by their names)
    status["rn"] = range(len(records))
    stations = station_frame(hubs)  # noqa: F841
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            "CREATE TABLE stations AS SELECT station_id AS station, name, lat, lon, capacity, NULL AS area, "
            "(row_number() OVER (ORDER BY station_id) - 1)::INTEGER AS ix FROM stations"
        )
        connection.execute(
            """CREATE TABLE status AS SELECT station, make_timestamp(last_reported * 1000000) AS "at",
            num_bikes_available::INTEGER AS available, num_bikes_disabled::INTEGER AS disabled,
            num_docks_available::INTEGER AS docks, is_installed AS installed, is_renting AS renting,
            is_returning AS accepting, ix, rn, last_reported::BIGINT AS second
            FROM status JOIN stations ON station = station_id"""
        )
        tables = {"stations", "status"}
        if trips:
            tables.add("trips")
            rides = trip_frame(trips)  # noqa: F841
            connection.execute(
                """CREATE TABLE trips AS SELECT ride_id AS trip_id, started_at::TIMESTAMP AS started_at,
                ended_at::TIMESTAMP AS ended_at, start_station_id AS start_station, end_station_id AS end_station,
                NULL::DOUBLE AS start_lat, NULL::DOUBLE AS start_lon, NULL::DOUBLE AS end_lat, NULL::DOUBLE AS end_lon,
                s.ix AS start_ix, e.ix AS end_ix
                FROM rides JOIN stations s ON start_station_id = s.station
                JOIN stations e ON end_station_id = e.station"""
            )
            connection.execute(
                """CREATE TABLE trip_span AS SELECT min(started_at) AS first, max(started_at) AS last,
                max(ended_at) AS last_end FROM trips"""
            )
        quality = pd.DataFrame(
            {
                "source": "status",
                "reason": "read",
                "action": "noted",
                "rows": [len(records)],
                "share": 1.0,
                "detail": "",
            }
        )
        given = Records(connection, ZONE, frozenset(tables), quality, folder)
        zones = "superhubs:200m" if hubs else "stations"
        return panel_of(given, zones=zones, every=f"{every}min", keep="all", **({"supply": "listed"} | options))


def check(records: list[Record], trips: list[Trip], every: int, hubs: bool, result: Panel, **options: Any) -> None:
    zones = {"hub:a": ["a", "b"], "hub:c": ["c", "d"]} if hubs else {s: [s] for s in STATIONS}
    expected = reference.panel(records, trips, zones, every, ZONE, **options)
    found = result.panel.astype(object).where(result.panel.notna(), None).to_dict("records")
    assert len(found) == len(expected)
    reasons: Counter[tuple[str, str]] = Counter()
    for row, want in zip(found, expected, strict=True):
        assert row["zone"] == want["zone"]
        assert row["start"].timestamp() == want["start"] * 60
        assert row["start_local"] == pd.Timestamp(want["start_local"])
        for column in want:
            if column not in ("zone", "start", "start_local", "reasons", "supply_mean", "exposure"):
                assert row.get(column) == want[column], (column, row, want)
        assert row["exposure"] == pytest.approx(want["exposure"])
        assert (row["supply_mean"] is None) == (want["supply_mean"] is None)
        assert row["supply_mean"] is None or row["supply_mean"] == pytest.approx(want["supply_mean"])
        reasons += Counter({(want["zone"], reason): n for reason, n in want["reasons"].items()})
    assert {(r.zone, r.reason): r.minutes for r in result.reasons.itertuples()} == dict(reasons)


@st.composite
def feeds(draw: st.DrawFn) -> tuple[list[Record], list[Trip], int, bool]:
    """A feed of a day or so around a change of the clocks, as busy or as quiet as it comes."""
    day = draw(st.sampled_from(DAYS))
    begin = reference.utc(f"{day} 20:00", ZONE)
    span = draw(st.integers(2, 10)) * 3600
    rng = random.Random(draw(st.integers(0, 2**32)))
    records = []
    polled = draw(st.booleans())
    polls = sorted(rng.randrange(span) for _ in range(draw(st.integers(1, 25))))
    for station in STATIONS[: draw(st.integers(1, 4))]:
        times = polls if polled else [rng.randrange(span) for _ in range(draw(st.integers(1, 90)))]
        lost = draw(st.tuples(st.integers(0, span), st.integers(0, span)))
        for time in times:
            if min(lost) <= time < max(lost) and len(records) > 1:
                continue
            record = Record(
                station,
                begin + time - (time % 60 if rng.random() < 0.3 else 0),
                max(0, rng.randint(-3, 12)),
                rng.choice([0, 0, 0, 1, 4]),
                rng.choice([0, 3, 9]),
                rng.random() > 0.03,
                rng.random() > 0.1,
                rng.random() > 0.1,
            )
            records.append(record)
            if rng.random() < 0.05:
                records.append(Record(station, record.second, rng.randint(0, 5)))
    records = records or [Record("a", begin, 3)]
    trips = []
    if draw(st.booleans()):
        for _ in range(draw(st.integers(1, 30))):
            started = begin + rng.randrange(-3600, span + 3600)
            trips.append(Trip(started, started + rng.randrange(120, 3000), rng.choice(STATIONS), rng.choice(STATIONS)))
    every = draw(st.sampled_from([5, 7, 15, 60, 120, 360, 1440, 2880, 10080]))
    return records, trips, every, draw(st.booleans())


@settings(max_examples=40, deadline=None, report_multiple_bugs=False, suppress_health_check=[HealthCheck.too_slow])
@given(feeds(), st.sampled_from([3, 8]), st.sampled_from([None, ("22:00-23:30", (1320, 1410))]))
def test_every_minute_and_every_count_is_that_of_the_slow_reference(feed, rebalancing, hours):
    records, trips, every, hubs = feed
    with tempfile.TemporaryDirectory() as folder:
        result = build_from_tables(
            Path(folder), records, trips, every, hubs, rebalancing=rebalancing, hours=hours and hours[0]
        )
    check(records, trips, every, hubs, result, rebalancing=rebalancing, hours=hours and hours[1])
    frame = result.panel
    states = [f"{s}_minutes" for s in ("available", "stockout", "closed", "unknown")]
    assert (frame[states].sum(axis=1) == frame["minutes"]).all()
    if trips:
        inside = frame[frame["evidence"].isin(["trips", "status+trips"])]
        assert inside["observed"].sum() == len(trips)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, report_multiple_bugs=False, suppress_health_check=[HealthCheck.too_slow])
@given(feeds())
def test_through_the_readers_it_is_the_same(feed):
    records, trips, every, hubs = feed
    check(records, trips, every, hubs, build(records, trips, every, hubs))


def long_feed(seed: int) -> list[Record]:
    """Thirteen days of six-minute traffic by day and quiet nights, with an outage, a closure and a dead station.

    One station is closed for days without saying so, one opens late after the closure.
    """
    rng = random.Random(seed)
    begin = reference.utc("2021-03-01 00:00", ZONE)
    records = []
    for station in STATIONS:
        level, second = 5, begin + rng.randrange(600)
        while second < begin + 13 * 86400:
            day, hour = divmod((second - begin) / 3600, 24)
            level = max(0, min(9, level + rng.choice([-2, -1, -1, 1, 1, 2])))
            outage = (5, 13) <= (day, hour) < (5, 19)
            closed = (8, 6) <= (day, hour) < (9, 6)
            dead = station == "b" and 10 <= day < 12
            shut = station == "d" and (2, 6) <= (day, hour) < (4, 22)  # for days, and it does not say so
            late = station == "c" and (9, 6) <= (day, hour) < (10, 3)  # after the closure
            if station == "c" and closed:
                records.append(Record(station, second, 0, docks=9, renting=False))
                second += 1800
                continue
            if shut or late:
                records.append(Record(station, second, 0, docks=9))
                level = 0
            elif not (outage or closed or dead):
                records.append(Record(station, second, level, docks=9 - level))
            if closed and rng.random() < 0.3:  # the feed lives, but nothing moves
                last = next(r for r in reversed(records) if r.station == station)
                records.append(Record(station, second, last.available, docks=last.docks))
            second += rng.randrange(200, 600) if 7 <= hour < 21 else rng.randrange(7000, 14000)
    return records


@pytest.mark.slow
def test_two_weeks_with_outage_closure_and_dead_station_are_those_of_the_slow_reference():
    records = long_feed(1)
    result = build(records, [], 360)
    check(records, [], 360, False, result)
    reasons = result.reasons.groupby("reason")["minutes"].sum()
    assert reasons["feed_silent"] >= 4 * 6 * 60 * 0.9  # the outage, for all four
    assert reasons["standstill"] >= 3 * 20 * 60  # the closure, of those that do not report it
    assert reasons["unused"] >= 60 * 60  # d, which is empty for days
    assert reasons["not_reopened"] >= 20 * 60  # c, after the closure
    assert reasons["silent"] >= 40 * 60  # the dead station, and it alone
    assert set(result.reasons.query("reason == 'silent'")["zone"]) == {"b"}
    nights = result.panel[result.panel["start_local"].dt.hour == 0]
    first_days = nights[nights["start_local"] < "2021-03-06"].query("start_local > '2021-03-01'")
    assert (first_days["unknown_minutes"] == 0).all()  # quiet nights are not unknown
