"""Words and units for weather columns, whose headers are those of the user's file."""

from __future__ import annotations

import re

__all__ = ["describe_column"]

# Codes of NOAA (GHCN) and Meteostat. Meteostat's units are fixed; NOAA's depend on the download.
_CODES = {
    "prcp": "precipitation", "snow": "snowfall", "snwd": "snow depth", "tavg": "mean temperature",
    "tmin": "lowest temperature", "tmax": "highest temperature", "temp": "temperature", "dwpt": "dew point",
    "rhum": "humidity", "awnd": "wind speed", "wspd": "wind speed", "wpgt": "strongest gust", "pres": "air pressure",
    "tsun": "sunshine",
}  # fmt: skip
_METEOSTAT = {
    "prcp": "mm", "snow": "mm", "tavg": "°C", "tmin": "°C", "tmax": "°C", "temp": "°C", "dwpt": "°C", "rhum": "%",
    "wspd": "km/h", "wpgt": "km/h", "pres": "hPa", "tsun": "min",
}  # fmt: skip
_UNITS = {
    "c": "°C", "celsius": "°C", "degc": "°C", "°c": "°C", "f": "°F", "fahrenheit": "°F", "degf": "°F", "°f": "°F",
    "k": "K", "mm": "mm", "cm": "cm", "m": "m", "in": "in", "inch": "in", "inches": "in", "kmh": "km/h", "km/h": "km/h",
    "kph": "km/h", "mph": "mph", "ms": "m/s", "m/s": "m/s", "mps": "m/s", "kn": "kn", "knots": "kn", "hpa": "hPa",
    "mb": "hPa", "mbar": "hPa", "pct": "%", "percent": "%", "%": "%", "km": "km", "min": "min", "h": "h",
}  # fmt: skip
_IN_BRACKETS = re.compile(r"^(?P<name>.*?)[\s_]*[(\[](?P<unit>[^()\[\]]*)[)\]]\s*$")
_AT_THE_END = re.compile(r"^(?P<name>.+)_(?P<unit>[A-Za-z%/°]+)$")
_AMBIGUOUS = {"min", "m", "h", "k"}  # at the end of a name they may be words: temp_min


def describe_column(header: str) -> tuple[str, str]:
    """Return the name of a weather column for readers, and its unit; '' if the header does not contain it.

    Examples
    --------
    >>> describe_column("Precipitation_per_day(mm)"), describe_column("temperature_c"), describe_column("PRCP")
    (('Precipitation per day', 'mm'), ('temperature', '°C'), ('precipitation (PRCP)', ''))
    """
    name, unit = header, ""
    if (found := _IN_BRACKETS.match(header)) and found["name"]:
        name, unit = found["name"], _UNITS.get(found["unit"].strip().lower(), found["unit"].strip())
    elif (found := _AT_THE_END.match(header)) and found["unit"].lower() in _UNITS.keys() - _AMBIGUOUS:
        name, unit = found["name"], _UNITS[found["unit"].lower()]
    code = name.lower()
    if code in _CODES:
        return f"{_CODES[code]} ({name})", unit or (_METEOSTAT.get(code, "") if name == code else "")
    return re.sub(r"_+", " ", name).strip(), unit
