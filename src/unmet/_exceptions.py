"""Exceptions and warnings that `unmet` raises.

::

    UnmetError
    ├── InputError (also a ValueError)      an argument, a file or a column is not as expected
    │   └── FileFormatError                 a file does not have the expected format
    ├── MissingExtraError (also ImportError) an optional package is not installed
    └── NumericalError (also ArithmeticError) a computation cannot be done in double precision

Warnings: ``ConvergenceWarning`` (scikit-learn's own) if a fit ends without converging, `NumericalWarning` if numbers
were changed to make a computation possible, `UninformativeWarning` if rows or columns carry no information.
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
    """Base class of all errors that `unmet` raises."""


class InputError(UnmetError, ValueError):
    """An argument, a file or a column is not as expected. The message states what was expected and what to do.

    Parameters
    ----------
    message : str
        What was expected, what was found, and what to do.
    row : int, optional
        Position of the first row that the message names.
    """

    def __init__(self, message: str = "", *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class FileFormatError(InputError):
    """A file does not have the expected format. The message names the file and the field."""


class NumericalError(UnmetError, ArithmeticError):
    """A computation cannot be carried out in double precision. The message states what to change."""


class NumericalWarning(UserWarning):
    """Numbers were changed to make a computation possible. The message states which, and by how much."""


class UninformativeWarning(UserWarning):
    """Some rows or columns carry no information about demand. The message states which, why, and what was done."""


class MissingExtraError(UnmetError, ImportError):
    """An optional package is needed and not installed.

    Parameters
    ----------
    package : str
        The package that could not be imported.
    extra : str
        The extra of `unmet` that installs it.
    purpose : str
        The feature that needs it, as the start of a sentence: "Plots", "H3 zones".
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} need the package {package!r}, which is not installed. "
            f"Install it with: pip install 'unmet[{extra}]'"
        )


def __getattr__(name: str) -> Any:
    """Import scikit-learn's warning on first use, because the import takes seconds (PEP 562)."""
    if name != "ConvergenceWarning":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn.exceptions import ConvergenceWarning

    return ConvergenceWarning
