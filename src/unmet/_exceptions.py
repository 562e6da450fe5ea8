"""Everything that `unmet` raises on purpose.

::

    UnmetError
    ├── InputError (also a ValueError)      an argument, a file or a column is not what was expected
    │   └── FileFormatError                 a file cannot be read as what it was given for
    ├── MissingExtraError (also ImportError) an optional package is not installed
    └── NumericalError (also ArithmeticError) a computation cannot be done in double precision

Warnings: ``ConvergenceWarning`` (scikit-learn's own) when a fit ends without converging, `NumericalWarning` when
something had to be done to the numbers for it to be computed at all, `UninformativeWarning` when rows or columns say
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sklearn.exceptions import ConvergenceWarning

__all__ = [
    "ConvergenceWarning",
    "FileFormatError",
    "InputError",
    "MissingExtraError",
    "NumericalError",
    "NumericalWarning",
    "UninformativeWarning",
    "UnmetError",
]


class UnmetError(Exception):
    """The root of every error that `unmet` raises on purpose."""


class InputError(UnmetError, ValueError):
    """What was given is not what was expected; the message says which, and what to do."""


class FileFormatError(InputError):
    """A file cannot be read as what it was given for; the message names the file and the field."""


class NumericalError(UnmetError, ArithmeticError):
    """A computation cannot be carried out in double precision; the message says what to change."""


class NumericalWarning(UserWarning):
    """Numbers were changed so that a computation could be done; the message says what and by how much."""


class UninformativeWarning(UserWarning):
    """Some rows or columns say nothing about demand; the message says which, why, and what was done."""


class MissingExtraError(UnmetError, ImportError):
    """An optional package is needed and not installed.

    Parameters
    ----------
    package : str
        What could not be imported.
    extra : str
        The extra of `unmet` that brings it.
    purpose : str
        What needs it, as the start of a sentence: "Plots", "H3 zones".
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} need the package {package!r}, which is not installed. "
            f"Install it with: pip install 'unmet[{extra}]'"
        )


def __getattr__(name: str) -> Any:
    """Import scikit-learn, which takes seconds, only when its warning is asked for (PEP 562)."""
    if name != "ConvergenceWarning":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn.exceptions import ConvergenceWarning

    return ConvergenceWarning
