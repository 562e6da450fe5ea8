"""Recover the demand that supply could not serve.

>>> import unmet
>>> unmet.CensoredGP()
CensoredGP()
"""

from unmet._exceptions import (
    ConvergenceWarning,
    FileFormatError,
    InputError,
    MissingExtraError,
    NumericalError,
    NumericalWarning,
    UninformativeWarning,
    UnmetError,
)
from unmet.estimators import CensoredGP, TobitRegressor

__version__ = "0.1.0.dev0"

__all__ = [
    "CensoredGP",
    "ConvergenceWarning",
    "FileFormatError",
    "InputError",
    "MissingExtraError",
    "NumericalError",
    "NumericalWarning",
    "TobitRegressor",
    "UninformativeWarning",
    "UnmetError",
    "__version__",
]
