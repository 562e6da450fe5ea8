"""Public holidays, and the country of a time zone."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from zoneinfo import TZPATH

import pytest

from unmet._exceptions import InputError
from unmet.mobility.clock.public_holidays import country_of, holiday_name, public_holidays


def test_subdivisions_have_their_own():
    assert date(2021, 4, 19) in public_holidays("US:MA", [2021])  # the day of the patriots
    assert date(2021, 4, 19) not in public_holidays("US", [2021])


def test_unknown_countries_are_refused_or_have_none():
    with pytest.raises(InputError, match="no calendar for country 'XX', subdivision None"):
        public_holidays("XX", [2021])
    assert holiday_name(date(2021, 7, 4), "XX") is None


@pytest.mark.skipif(not any(Path(folder, "zone.tab").is_file() for folder in TZPATH), reason="no zone.tab here")
def test_time_zones_are_of_countries():
    assert [country_of(name) for name in ("America/New_York", "Europe/Oslo", "Etc/UTC")] == ["US", "NO", None]


@pytest.mark.parametrize("name", ["MON", "utils", "HolidayBase", "country_holidays", "__class__", "__doc__", ""])
def test_a_name_of_the_package_is_no_country(name: str) -> None:
    with pytest.raises(InputError, match="no calendar for country"):
        public_holidays(name, [2021])
