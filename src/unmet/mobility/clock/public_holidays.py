"""Public holidays by country, from the package `holidays`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from pathlib import Path
from zoneinfo import TZPATH

from unmet._exceptions import InputError, MissingExtraError

__all__ = ["country_of", "holiday_name", "public_holidays"]


def public_holidays(code: str, years: Iterable[int]) -> dict[date, str]:
    """Return the names of the public holidays of some years, by day.

    Parameters
    ----------
    code : str
        Country and optionally subdivision, by their ISO codes: ``US`` or ``US:NY``.
    years : iterable of int
        The years.

    Examples
    --------
    >>> public_holidays("US", [2021])[date(2021, 7, 4)]
    'Independence Day'
    """
    try:
        import holidays
    except ImportError:
        raise MissingExtraError("holidays", "mobility", "Holidays") from None
    country, _, subdivision = code.partition(":")
    try:
        # The package would look up and call whatever it has of that name.
        if country not in holidays.list_supported_countries(include_aliases=True):
            raise NotImplementedError(f"Country {country} not available.")
        return dict(holidays.country_holidays(country, subdiv=subdivision or None, years=sorted({*years})))
    except NotImplementedError as error:
        raise InputError(
            f"holidays: no calendar for country {country!r}, subdivision {subdivision or None!r}: {error} "
            "Give the ISO codes, such as 'US' and 'NY'."
        ) from error


def holiday_name(day: date, code: str | None) -> str | None:
    """Return the name of a public holiday; None on other days, without a country, or if its calendar is not known.

    Examples
    --------
    >>> holiday_name(date(2024, 5, 27), "US"), holiday_name(date(2024, 5, 28), "US"), holiday_name(date.today(), None)
    ('Memorial Day', None, None)
    """
    if code is None:
        return None
    try:
        return public_holidays(code, [day.year]).get(day)
    except (InputError, MissingExtraError):
        return None


def country_of(timezone: str) -> str | None:
    """Return the ISO code of the country of a time zone; None if the system has no table of them.

    Examples
    --------
    >>> country_of("Not/AZone") is None
    True
    """
    return _countries().get(timezone)


@lru_cache
def _countries() -> dict[str, str]:
    """Read ``zone.tab`` of the time zone database: code, position and zone, separated by tabs."""
    for folder in TZPATH:
        path = Path(folder, "zone.tab")
        if path.is_file():
            rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "#")
            return {row[2].strip(): row[0] for row in rows if len(row) > 2}
    return {}
