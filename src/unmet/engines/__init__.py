"""Engines: executors by the names that settings and the command line use.

``processes`` and ``serial`` run on this machine (`unmet.execution`), ``spark://host:port`` on a cluster
(`unmet.engines.spark`).
"""

from __future__ import annotations

from unmet._exceptions import InputError
from unmet.execution import Executor, in_processes, serially

__all__ = ["ENGINES", "ENGINE_WORDS", "find_executor"]

ENGINES: dict[str, Executor] = {"processes": in_processes, "serial": serially}
"""Executors of this machine."""

ENGINE_WORDS = f"{', '.join(ENGINES)}, or a Spark cluster as spark://host:port"
"""The names of engines, as help texts and errors list them."""


def find_executor(engine: str | Executor) -> Executor:
    """Give the executor of a name; an executor is returned as it is.

    Examples
    --------
    >>> find_executor("serial") is serially
    True
    """
    if not isinstance(engine, str):
        return engine
    if engine.startswith("spark://"):
        from unmet.engines.spark import OnSpark

        return OnSpark(engine)
    if engine not in ENGINES:
        raise InputError(f"engine: expected one of {ENGINE_WORDS}; got {engine!r}.")
    return ENGINES[engine]
