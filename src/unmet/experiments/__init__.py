"""The four experiments of Gammelli et al. (2020): `synthetic`, `motorcycle`, `bike` and `taxi`.

Each module has one function, ``reproduce(run)``, which writes tables, figures and ``results.csv`` to ``run.out``.
"""

from unmet.experiments._run import Run

__all__ = ["Run"]
