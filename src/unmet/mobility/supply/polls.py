"""Polls of a feed: they show when nobody looked, as opposed to when nothing moved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmet.mobility.clock.bins import Integers

__all__ = ["MISSED_POLLS", "Polls"]

MISSED_POLLS = 3
"""Number of missed polls that is a silence. A poll lists every station and has no quiet hours."""


@dataclass(frozen=True)
class Polls:
    """Polls that were answered.

    Attributes
    ----------
    minutes : array
        Minutes since 1970-01-01 UTC with a poll; sorted, without repeats.
    fresh : array
        Those in which the document was a new one. A publisher that is dead answers with the old one.
    """

    minutes: Integers
    fresh: Integers

    def gaps(self) -> Integers:
        """Return the stretches (begin, end) in which nobody looked.

        They are longer than three usual intervals between polls.

        Examples
        --------
        >>> minutes = np.array([0, 1, 2, 3, 9, 10, 13])
        >>> Polls(minutes, minutes).gaps()
        array([[4, 9]])
        """
        between = np.diff(self.minutes)
        if len(between) == 0:
            return np.empty((0, 2), dtype=np.int64)
        missed = between > MISSED_POLLS * np.median(between)
        return np.column_stack([self.minutes[:-1][missed] + 1, self.minutes[1:][missed]])

    def fresh_share(self, begin: Integers, end: Integers) -> NDArray[np.float64]:
        """Return the share of the usual polls of each stretch that brought a new document."""
        count = np.searchsorted(self.fresh, end) - np.searchsorted(self.fresh, begin)
        usual = float(np.median(np.diff(self.minutes))) if len(self.minutes) > 1 else 1.0
        return count * usual / np.maximum(end - begin, 1)
