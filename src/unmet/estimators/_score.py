"""What both estimators are scored by."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from unmet._exceptions import InputError
from unmet.estimators._labels import sides

__all__ = ["ScoredOnExactRows"]


class ScoredOnExactRows(RegressorMixin):
    """R² that can leave out rows whose truth is not known."""

    def score(self, X: Any, y: Any, sample_weight: Any = None, censored: Any = None) -> float:
        """R² of the predicted mean; with `censored`, over the rows that are not."""
        y = np.asarray(y)
        if len(y) != len(X):
            raise InputError(f"y must have one value per row of X; got {len(y)} for {len(X)} rows")
        keep = sides(censored, len(y)) == 0
        if not keep.any():
            raise InputError(f"all {len(y)} rows are censored: R² needs a known truth; unmet.metrics.nlpd does not")
        weight = None if sample_weight is None else np.asarray(sample_weight)[keep]
        return float(r2_score(y[keep], self.predict(X)[keep], sample_weight=weight))
