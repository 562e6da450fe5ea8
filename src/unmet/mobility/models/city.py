"""What the zones of a city share: how they rise and fall together, and how far they differ from that.

The first is a curve (`unmet.mobility.models.city_curve`). The second are the hyper-parameters of the zones' kernel: one
zone says little of how much its Tuesdays differ from its Mondays, or how long its drift takes; several together say it
well. Each zone is then estimated at those, without a search of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd

from unmet._exceptions import ConvergenceWarning, FileFormatError
from unmet.estimators import CensoredGP
from unmet.estimators._together import learn_together
from unmet.kernels import Kernel, kernel_from_dict
from unmet.likelihoods.counts import NegativeBinomial
from unmet.mobility.models.city_curve import shared_curve
from unmet.mobility.models.zone_data import SHARED, SHARED_OFF, Learnt, ZoneData, zone_data
from unmet.mobility.models.zone_models import SEARCH_ITERATIONS, demand_kernel, inference_for, search_rows

__all__ = ["Shared", "learn_shared", "learn_shared_of_rows", "with_shared"]

# So many zones, drawn at random, and so many bins of each tell how far zones differ.
_ZONES, _ROWS = 12, 3000
# Nats of all of them. The last half of a search gains less than half a nat, and nothing can be seen of it.
_LEAST_GAIN = 0.03
# A zone with more of the city's trips than this share would find its own chance in what it is told of all.
_MOST = 0.25


@dataclass(frozen=True)
class Shared:
    """What all zones share.

    Attributes
    ----------
    curve : DataFrame
        ``start``, ``shared_log_rate`` and how that may be off: see `unmet.mobility.models.city_curve.shared_curve`.
    learnt : Learnt
        The kernel of how zones differ from it, at hyper-parameters that suit them best together, and the
        dispersion of their counts.
    trips : float
        How many trips were seen in all zones.
    """

    curve: pd.DataFrame
    learnt: Learnt
    trips: float

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description."""
        return {
            "start": self.curve["start"].astype("int64").tolist(),
            "unit": self.curve["start"].dt.unit,
            "curve": {name: self.curve[name].tolist() for name in (SHARED, *SHARED_OFF)},
            "trips": self.trips,
            "kernel": self.learnt.kernel.to_dict(),
            "dispersion": self.learnt.dispersion,
            "dispersion_sd": self.learnt.dispersion_sd,
        }

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """Read back what `to_dict` wrote."""
        try:
            start = pd.to_datetime(np.array(description["start"]), unit=description["unit"], utc=True)
            start = start.as_unit(description["unit"])
            columns = {name: np.array(description["curve"][name], dtype=float) for name in (SHARED, *SHARED_OFF)}
            curve = pd.DataFrame({"start": start, **columns})
            kernel = kernel_from_dict(description["kernel"])
            learnt = Learnt(kernel, float(description["dispersion"]), float(description["dispersion_sd"]))
            trips = float(description["trips"])
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise FileFormatError(f"this is not what zones share, as it was written: {error!r}") from error
        return cls(curve, learnt, trips)


def with_shared(data: ZoneData, shared: Shared | None) -> ZoneData:
    """The same zone, told what all zones share; as it is where that is not known, or too much its own."""
    if shared is None or data.observed[data.seen].sum() > _MOST * shared.trips:
        return data
    told = _with_curve(data, shared.curve)
    if not np.isfinite(told.inputs[SHARED]).all():
        return data  # a record longer than that of the zones that could be added up
    # A zone that lacks a covariate of the others, as one open only while it never rained, has a kernel of its own.
    return replace(told, learnt=shared.learnt) if _columns(shared.learnt.kernel) <= set(told.inputs) else told


def _with_curve(data: ZoneData, curve: pd.DataFrame) -> ZoneData:
    columns = [SHARED, *SHARED_OFF]
    values = curve.set_index("start")[columns].reindex(data.start).to_numpy(dtype=float)
    inputs = pd.concat([data.inputs, pd.DataFrame(values, columns=columns, index=data.inputs.index)], axis=1)
    return replace(data, inputs=inputs)


def learn_shared(zones: Iterable[tuple[pd.DataFrame, ZoneData]], seed: int = 0) -> Shared | None:
    """What the zones share; None where there are too few, or no trips.

    Parameters
    ----------
    zones : iterable of (DataFrame, ZoneData)
        Rows of a panel with the features of their bins, and the same as data; they are gone through once. What the
        data do not say, as in weeks hidden on purpose, is not used.
    seed : int
        Decides which zones and rows the searches for hyper-parameters look at.

    Examples
    --------
    >>> learn_shared([]) is None
    True
    """
    kept: dict[int, ZoneData] = {}
    trips: list[float] = []
    curve = shared_curve(_keeping_some(zones, kept, trips, np.random.default_rng(seed)), seed)
    if curve is None:
        return None
    return Shared(curve, _learnt([_with_curve(data, curve) for data in kept.values()], seed), sum(trips))


def learn_shared_of_rows(zones: Iterable[pd.DataFrame]) -> Shared | None:
    """What the zones of a panel share, from the rows of each: what a run asks for.

    A zone that cannot be estimated is left out here; why, is told when it is tried itself.
    """

    def readable() -> Iterator[tuple[pd.DataFrame, ZoneData]]:
        for rows in zones:
            try:
                data = zone_data(rows)
            except Exception:  # whatever it is, it is the zone's own
                continue
            yield rows, data

    return learn_shared(readable())


def _keeping_some(
    zones: Iterable[tuple[pd.DataFrame, ZoneData]],
    kept: dict[int, ZoneData],
    trips: list[float],
    rng: np.random.Generator,
) -> Iterator[tuple[pd.DataFrame, ZoneData]]:
    """Hand the zones on, counting trips and keeping a random few, all as likely (Vitter 1985, algorithm R)."""
    for rows, data in zones:
        if data.has_counts:
            number = len(trips)
            place = number if number < _ZONES else int(rng.integers(number + 1))
            if place < _ZONES:
                kept[place] = data
            trips.append(float(data.observed[data.seen].sum()))
        yield rows, data


def _learnt(zones: Sequence[ZoneData], seed: int) -> Learnt:
    """Hyper-parameters of the kernel of the zone with the longest record, from all that have its columns."""
    longest = max(zones, key=lambda data: float(np.ptp(data.inputs["t"])))
    kernel = demand_kernel(longest, shared=True)
    fitted = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it may end at its limit with little to gain
        for data in zones:
            if _columns(kernel) <= set(data.inputs):
                rows = search_rows(data.seen, seed, _ROWS)
                gp = CensoredGP(
                    kernel,
                    likelihood="negative-binomial",
                    inference=inference_for(data),
                    optimizer=None,
                )
                fitted.append(gp.fit(data.inputs.iloc[rows], data.observed[rows], exposure=data.exposure[rows]))
        found = learn_together(fitted, max_iter=SEARCH_ITERATIONS, least_gain=_LEAST_GAIN)
    likelihood = found.model.likelihood
    assert isinstance(likelihood, NegativeBinomial)
    dispersion = float(np.exp(likelihood.log_dispersion))
    return Learnt(found.model.kernel.with_columns_of(kernel), dispersion, found.likelihood_sd)


def _columns(kernel: Kernel) -> set[str]:
    return {str(name) for leaf in kernel.leaves() for name in leaf.columns or ()}
