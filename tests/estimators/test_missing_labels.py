"""How likely rows are labelled whose label is missing."""

import numpy as np
import pandas as pd
import pytest

from unmet import CensoredGP, InputError
from unmet.estimators import label_probability
from unmet.kernels import SquaredExponential


def busy_weeks(n: int = 160, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Days, their demand and its mean, labels that are missing in half of the rows, and all labels.

    Three of four days at the crests of a slow wave ran out, none in its troughs; such days show 0.7 of the demand.
    """
    rng = np.random.default_rng(seed)
    day = np.arange(float(n))[:, None]
    wave = np.sin(2 * np.pi * day[:, 0] / 40)
    mean = 50 + 5 * wave
    ran_out = rng.random(n) < np.where(wave > 0, 0.75, 0.0)
    wanted = mean + 4 * rng.normal(size=n)
    known = np.where(rng.random(n) < 0.5, ran_out, np.nan)
    return day, np.where(ran_out, 0.7, 1.0) * wanted, mean, known, ran_out


class TestLabelProbability:
    def test_known_labels_stay_and_missing_ones_follow_their_neighbours(self) -> None:
        X, _, _, known, ran_out = busy_weeks()
        found = label_probability(X, known)
        missing = np.isnan(known)
        np.testing.assert_array_equal(found[~missing], known[~missing])
        crest = np.sin(2 * np.pi * X[:, 0] / 40) > 0.3
        trough = np.sin(2 * np.pi * X[:, 0] / 40) < -0.3
        assert 0.4 < found[missing & crest].mean() < ran_out[crest].mean()
        assert found[missing & trough].mean() < 0.15
        assert found[missing].min() >= 0.02
        assert found[missing].max() <= 0.98

    @pytest.mark.parametrize("seed", range(4))
    def test_labels_at_random_leave_the_fraction_of_the_known_ones(self, seed: int) -> None:
        """With the noise learnt, single labels may decide for the rows around them."""
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(120, 2))
        labels = np.where(rng.random(120) < 0.5, np.nan, rng.random(120) < 0.4)
        missing = np.isnan(labels)
        found = label_probability(X, labels)[missing]
        np.testing.assert_allclose(found, labels[~missing].mean(), atol=0.2)

    def test_with_it_a_fit_is_better_than_with_one_odds_for_all(self) -> None:
        errors = {"odds": [], "probability": []}
        for seed in range(4):
            X, y, mean, known, _ = busy_weeks(seed=seed)
            kernel = SquaredExponential(columns=0)
            odds = CensoredGP(kernel, censoring="share").fit(X, y, known)
            own = CensoredGP(kernel, censoring="share")
            own.fit(X, y, censored_probability=label_probability(X, known, kernel))
            for name, gp in (("odds", odds), ("probability", own)):
                errors[name].append(np.mean(np.square(gp.predict(X) - mean)))
        assert np.mean(errors["probability"]) < 0.8 * np.mean(errors["odds"])

    def test_frames_and_all_kinds_of_missing_labels(self) -> None:
        X, _, _, known, _ = busy_weeks(60)
        asked = label_probability(X, known, SquaredExponential(columns=0))
        frame = pd.DataFrame({"day": X[:, 0]})
        labels = pd.Series(known).astype("boolean")
        np.testing.assert_allclose(label_probability(frame, labels, SquaredExponential(columns="day")), asked)
        words = [None if np.isnan(k) else bool(k) for k in known]
        np.testing.assert_allclose(label_probability(X, words, SquaredExponential(columns=0)), asked)

    def test_labels_in_another_order_than_the_rows_are_refused(self) -> None:
        X, _, _, known, _ = busy_weeks(60)
        frame, labels = pd.DataFrame({"day": X[:, 0]}), pd.Series(known)
        with pytest.raises(InputError, match=r"another order: row 0 is 59 in censored and 0 in X"):
            label_probability(frame, labels[::-1])
        with pytest.raises(InputError, match=r"censored has the rows of X in another order"):
            label_probability(frame, pd.Series(np.arange(60) % 2.0)[::-1])  # no label is missing

    def test_no_label_missing(self) -> None:
        X, _, _, _, ran_out = busy_weeks(40)
        np.testing.assert_array_equal(label_probability(X, ran_out), ran_out)

    def test_labels_of_one_kind_are_refused(self) -> None:
        X = np.arange(4.0)[:, None]
        with pytest.raises(InputError, match=r"of 4 rows 2 are labelled and 0 are not"):
            label_probability(X, [1, 1, np.nan, np.nan])
        with pytest.raises(InputError, match=r"one label per row of X"):
            label_probability(X, [1, 0])
