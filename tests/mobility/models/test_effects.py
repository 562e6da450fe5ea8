"""Effects of weather and holidays: against a known rate."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from unmet.mobility.models.effects import find_effects
from unmet.mobility.models.kept import InputScales

UNIT = 2.0  # mean of the positive rain


class KnownRate:
    """A fitted curve whose draws of the rate are known: rain, a holiday and the week have an effect, no other input."""

    def sample(self, at: pd.DataFrame, draws: int, random_state: int) -> np.ndarray:
        strength = np.linspace(-1.2, -0.8, draws)[:, None]
        rain = UNIT * np.expm1(at["x:rain"].to_numpy())
        log = 3.0 + strength * 0.1 * rain + 0.05 * at["x:temperature"].to_numpy() + 0.5 * at["holiday"].to_numpy()
        return np.exp(log - 0.2 * at["weekend"].to_numpy())


def city(holidays: bool = True) -> SimpleNamespace:
    rng = np.random.default_rng(0)
    rain = np.where(rng.random(500) < 0.2, rng.exponential(UNIT, 500), 0.0)
    inputs = pd.DataFrame({"week": 0.0, "weekend": 0.0, "holiday": 0.0}, index=range(500))
    inputs["x:rain"], inputs["x:temperature"] = np.log1p(rain / UNIT), rng.normal(10, 5, 500)
    inputs.loc[0, "holiday"] = float(holidays)
    scales = InputScales(pd.Timestamp("2024-01-01"), {"rain": (0.0, UNIT), "temperature": (10.0, None)})
    return SimpleNamespace(inputs=inputs, seen=np.ones(500, dtype=bool), scales=scales, daily=False)


def test_effects_are_ratios_to_usual_weather_in_the_units_of_the_file():
    data = city()
    rain, temperature, holiday = find_effects(KnownRate(), data, data.inputs)
    values = np.array(rain["values"])
    assert (rain["name"], rain["usual"], values[0]) == ("rain", 0.0, 0.0)
    assert rain["mean"] == pytest.approx(np.exp(-0.1 * values), rel=1e-6)
    assert rain["q05"] == pytest.approx(np.exp(-0.1 * 1.18 * values), rel=1e-2)
    assert temperature["mean"] == pytest.approx(np.exp(0.05 * (np.array(temperature["values"]) - 10)), rel=1e-6)
    assert holiday["mean"] == pytest.approx([np.exp(0.5 - 0.2)])


def test_there_is_no_effect_of_holidays_without_any():
    data = city(holidays=False)
    assert [effect["name"] for effect in find_effects(KnownRate(), data, data.inputs)] == ["rain", "temperature"]
