import numpy as np
import pytest

from unmet import InputError
from unmet.experiments import Run
from unmet.experiments.synthetic import draw, reproduce, truth


def test_the_function_is_the_papers():
    x = np.array([0.0, np.pi / 4, 10.0])
    assert truth(x) == pytest.approx([2.0, 2.5 + np.pi / 40, 3 + np.sin(20) / 2])


def test_peaks_and_only_peaks_lose_a_fifth_to_three_tenths():
    sample = draw(0.1, np.random.default_rng(0))
    peaks = np.sin(2 * sample.x) >= 0
    assert (len(sample.x), sample.x[0], sample.x[-1]) == (100, 0.0, 10.0)
    assert (sample.observed.censored == peaks).all()
    kept = sample.observed.y / sample.y_true
    assert (kept[~peaks] == 1).all()
    assert ((kept[peaks] >= 0.7) & (kept[peaks] <= 0.8)).all()


def test_noise_has_the_asked_variance():
    noise = np.concatenate([(s := draw(0.1, np.random.default_rng(i))).y_true - s.f for i in range(100)])
    assert noise.var() == pytest.approx(0.1, rel=0.06)


def test_noise_without_variance_is_refused(tmp_path):
    with pytest.raises(InputError, match="noise_variance"):
        reproduce(Run(tmp_path), noise_variance=0.0)
