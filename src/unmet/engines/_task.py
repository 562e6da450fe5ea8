"""One task of Spark: check this worker, then call the function on one item.

The functions of this module reach workers by value, also those that have no `unmet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from unmet._stamp import stamp

__all__ = ["ERROR", "RESULT", "UNFIT", "call", "probe"]

# The kinds of reply: a result, the exception of the function, or host and stamp of an unfit worker.
RESULT, ERROR, UNFIT = "result", "error", "unfit"


def probe(_: Iterable[Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Give the host and the stamp of this worker."""
    import socket

    yield socket.gethostname(), stamp()


def call(items: Iterable[bytes], *, expected: dict[str, str], function: Any) -> Iterator[bytes]:
    """Call the function on each item, unless this worker's stamp differs from the driver's.

    Parameters
    ----------
    items : iterable of bytes
        Pickled items.
    expected : dict
        Stamp of the driver.
    function : Broadcast
        The pickled function.

    Yields
    ------
    bytes
        A pickled pair: the kind of reply, and its content.
    """
    import socket

    from pyspark import cloudpickle

    mine = stamp()
    for item in items:
        if mine != expected:
            yield cloudpickle.dumps((UNFIT, (socket.gethostname(), mine)))
        else:
            yield _reply(function.value, item)


def _reply(function: bytes, item: bytes) -> bytes:
    from pyspark import cloudpickle

    try:
        return bytes(cloudpickle.dumps((RESULT, cloudpickle.loads(function)(cloudpickle.loads(item)))))
    except Exception as error:
        try:
            pickled = cloudpickle.dumps((ERROR, error))
            cloudpickle.loads(pickled)  # fails for exceptions whose arguments are not their own
        except Exception:
            pickled = cloudpickle.dumps((ERROR, RuntimeError(f"{type(error).__name__}: {error}")))
        return bytes(pickled)
