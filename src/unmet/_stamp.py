"""Versions and linear algebra of a process: with equal stamps, results are equal to the last digit.

Spark sends this module's function to its workers by value, also to those that have no `unmet`. So it imports nothing of
the package.
"""

from __future__ import annotations

__all__ = ["stamp"]


def stamp() -> dict[str, str]:
    """Return the versions of Python, `unmet`, NumPy and SciPy, and the kernels of linear algebra, of this process.

    OpenBLAS chooses a kernel for the processor that it finds. Another kernel adds numbers in another order, which
    changes last digits. ``OPENBLAS_CORETYPE`` sets the kernel.

    Examples
    --------
    >>> sorted(stamp())
    ['BLAS', 'NumPy', 'Python', 'SciPy', 'unmet']
    """
    import importlib
    import platform

    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name, module in {"unmet": "unmet", "NumPy": "numpy", "SciPy": "scipy"}.items():
        try:
            found[name] = str(importlib.import_module(module).__version__)
        except Exception as error:
            found[name] = f"missing ({type(error).__name__}: {error})"
    try:
        importlib.import_module("scipy.linalg")  # loads its library, which may be another than NumPy's
        libraries = importlib.import_module("threadpoolctl").threadpool_info()
        parts = ("internal_api", "version", "architecture")
        kernels = {" ".join(str(i[p]) for p in parts if i.get(p)) for i in libraries if i["user_api"] == "blas"}
        found["BLAS"] = ", ".join(sorted(kernels))
    except Exception as error:
        found["BLAS"] = f"missing ({type(error).__name__}: {error})"
    return found
