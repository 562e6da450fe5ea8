"""Estimators with the interface of scikit-learn."""

from unmet.estimators.censored_gp import CensoredGP
from unmet.estimators.missing_labels import label_probability
from unmet.estimators.tobit import TobitRegressor

__all__ = ["CensoredGP", "TobitRegressor", "label_probability"]
