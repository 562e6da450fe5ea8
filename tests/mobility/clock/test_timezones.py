"""The SQL clock against Python's own time zones, minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmet._exceptions import InputError
from unmet.mobility.clock.timezones import Clock, zone_info

ZONES = [
    "America/New_York",
    "Europe/Paris",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "UTC",
    "America/Sao_Paulo",
]


def expected(local: datetime, zone: ZoneInfo) -> tuple[datetime, int, int]:
    """UTC (PEP 495, fold 0), by how much it came again, and by how much it was jumped over (microseconds)."""
    first, second = (local.replace(tzinfo=zone, fold=f).astimezone(UTC).replace(tzinfo=None) for f in (0, 1))
    difference = int((second - first).total_seconds()) * 1_000_000
    return first, max(difference, 0), max(-difference, 0)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(ZONES),
    st.integers(1995, 2030),
    st.lists(st.integers(0, 366 * 24 * 60), min_size=1, max_size=60),
)
def test_the_sql_clock_reads_times_as_python_does(name: str, year: int, minutes: list[int]) -> None:
    zone = ZoneInfo(name)
    times = [datetime(year, 1, 1) + timedelta(minutes=m) for m in minutes]
    # And every quarter of an hour around each change of the clock in that year.
    clock = Clock(name, datetime(year, 1, 1), datetime(year + 1, 1, 3))
    for change in clock.changes:
        wall = change.instant + timedelta(seconds=change.before)
        times += [wall + timedelta(minutes=15 * i) for i in range(-12, 13)]
    sql = f"SELECT t, {clock.utc('t')}, {clock.doubled('t')}, {clock.skipped('t')} FROM (SELECT unnest(?) AS t)"
    for t, *found in duckdb.connect().execute(sql, [times]).fetchall():
        assert tuple(found) == expected(t, zone), (name, t)


def test_an_impossible_time_has_no_utc() -> None:
    clock = Clock("Europe/Paris", datetime(2020, 1, 1), datetime(2020, 2, 1))
    values = "('infinity'::TIMESTAMP), ('290000-01-01'), (NULL), ('0001-01-01')"
    sql = f"SELECT {clock.utc('t')} FROM (VALUES {values}) v(t)"
    assert duckdb.connect().execute(sql).fetchall() == [(None,)] * 4


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "/etc/passwd", "New York"])
def test_an_unknown_time_zone_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(InputError, match="America/New_York"):
        zone_info(name)


def test_zones_that_count_leap_seconds_are_refused() -> None:
    """Their clock changes at other moments, and pandas reads them without any change."""
    with pytest.raises(InputError, match="'right/Europe/Oslo' is not a known time zone"):
        zone_info("right/Europe/Oslo")


def test_a_machine_without_time_zones_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ZoneInfo:
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr("unmet.mobility.clock.timezones.ZoneInfo", missing)
    monkeypatch.setattr("unmet.mobility.clock.timezones.available_timezones", set)
    with pytest.raises(InputError, match="Install the Python package tzdata"):
        zone_info("Europe/Oslo")
