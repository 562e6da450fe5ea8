import numpy as np
import pytest

from unmet.experiments import motorcycle
from unmet.experiments._runner import Cell


def test_the_133_measurements_ship_with_the_package():
    x, y = motorcycle._data()
    assert (len(x), len(y)) == (133, 133)
    assert (x[0], x[-1], y.min(), y.max()) == (2.4, 57.6, -134.0, 75.0)
    assert (np.diff(x) >= 0).all()


def test_both_readings_hide_the_same_values():
    settings = {"p": 0.5, "a": 0.33, "b": 0.66, "repetition": 0}
    aware, literal = (motorcycle._observed(settings, 0, labels) for labels in ("side-aware", "literal"))
    np.testing.assert_array_equal(aware.y, literal.y)
    negative = aware.y < 0
    assert (aware.label[negative & aware.censored] == -1).all()
    assert (literal.label[negative & literal.censored] == 1).all()


def test_side_aware_labels_beat_literal_ones_where_much_is_hidden():
    reference = np.array(motorcycle._reference()["mean"])
    settings = {"p": 0.5, "a": 0.66, "b": 1.0, "repetition": 1}
    result = motorcycle._compute(Cell("motorcycle", settings, {}), seed=0, reference=reference)
    error = {
        (r["experiment"], r["model"]): r["value"]
        for r in result["rows"]
        if (r["metric"], r["subset"]) == ("rmse", "all")
    }
    aware, literal = error["motorcycle", "cgp"], error["motorcycle (literal labels)", "cgp"]
    assert aware < error["motorcycle", "ncgp"]
    assert literal > 2 * aware
    assert result["curves"] == {}, "only the first repetition is drawn"
    assert result["cost"]["fits"] == 5
    assert error["motorcycle", "share"] < aware
    assert all(np.isfinite(r["value"]) for r in result["rows"])
    assert reference.min() == pytest.approx(-117, abs=8)
