"""Names and units of weather columns."""

from __future__ import annotations

import pytest

from unmet.report.weather_words import describe_column


@pytest.mark.parametrize(
    ("header", "name", "unit"),
    [
        ("temperature_2m (°C)", "temperature 2m", "°C"),
        ("Average_daily_tempeture(F)", "Average daily tempeture", "°F"),
        ("wind_speed_kmh", "wind speed", "km/h"),
        ("rain [l/m²]", "rain", "l/m²"),
        ("temp_min", "temp min", ""),  # not minutes
        ("rain_in", "rain", "in"),
        ("tmax", "highest temperature (tmax)", "°C"),  # of Meteostat
        ("TMAX", "highest temperature (TMAX)", ""),  # of NOAA: °C or °F, by the download
        ("TMAX (F)", "highest temperature (TMAX)", "°F"),
        ("(mm)", "(mm)", ""),
        ("", "", ""),
    ],
)
def test_a_unit_is_read_from_the_header_and_never_guessed(header, name, unit):
    assert describe_column(header) == (name, unit)
