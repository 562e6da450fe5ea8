"""Estimate the demand that supply could not serve.

>>> import unmet
>>> unmet.CensoredGP()
CensoredGP()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unmet._exceptions import (
    FileFormatError,
    InputError,
    MissingExtraError,
    NumericalError,
    NumericalWarning,
    UninformativeWarning,
    UnmetError,
)

if TYPE_CHECKING:
    from unmet._exceptions import ConvergenceWarning
    from unmet.estimators import CensoredGP, TobitRegressor

__version__ = "0.1.0"

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

# Names that need scikit-learn, which takes seconds to import, are imported on first use (PEP 562).
_WHERE = {
    "CensoredGP": "unmet.estimators",
    "ConvergenceWarning": "unmet._exceptions",
    "TobitRegressor": "unmet.estimators",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'unmet' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
