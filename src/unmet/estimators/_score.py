"""What both estimators are scored by."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from unmet.estimators._labels import sides

__all__ = ["ScoredOnExactRows"]


class ScoredOnExactRows(RegressorMixin):
    """R² that can leave out rows whose truth is not known."""

    def score(self, X: Any, y: Any, sample_weight: Any = None, censored: Any = None) -> float:
        """R² of the predicted mean; with `censored`, over the rows that are not."""
        y = np.asarray(y)
        keep = sides(censored, len(y)) == 0
        weight = None if sample_weight is None else np.asarray(sample_weight)[keep]
        return float(r2_score(y[keep], self.predict(X)[keep], sample_weight=weight))
