"""The city model: the curve that all zones of a city follow, and how far zones differ from it.

The curve is learnt from the sum of all zones (`unmet.mobility.models.city_curve`). How far zones differ from it is in
the hyper-parameters of the zones' kernel. One zone has too few trips to learn, for example, how much its Tuesdays
differ from its Mondays; several zones together have enough. Each zone is then estimated with these hyper-parameters,
without a search of its own.
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
from unmet.estimators.together import learn_together, with_data
from unmet.kernels import Kernel, kernel_from_dict
from unmet.likelihoods.counts import NegativeBinomial
from unmet.mobility.models.city_curve import continued, learn_curve
from unmet.mobility.models.fitting import SEARCH_ITERATIONS, inference_for, search_rows
from unmet.mobility.models.kept import InputScales, KeptCurve
from unmet.mobility.models.kernel import demand_kernel
from unmet.mobility.models.trend import learn_trend
from unmet.mobility.models.zone_data import CITY_ERRORS, CITY_RATE, Hyperparameters, ZoneData, zone_data
from unmet.spreading import Spread, in_turn

__all__ = ["CityModel", "learn_city", "learn_city_from_rows", "with_city"]

# Hyper-parameters are learnt from this many zones, drawn at random, and this many bins of each.
_ZONES, _ROWS = 12, 3000
# Nats, over all of them: the search stops below this gain. The last half of a full search gains less than half a nat,
# without any visible change of the estimates.
_LEAST_GAIN = 0.03
# With fewer rows, all evidences are evaluated before other processes have started.
_FEW_ROWS = 12_000
# A zone with a larger share of the city's trips is estimated alone: the curve would contain too much of its own noise.
_LARGEST_SHARE = 0.25


@dataclass(frozen=True)
class CityModel:
    """A city model.

    Attributes
    ----------
    curve : DataFrame
        ``start``, ``shared_log_rate`` and the errors of the curve: see `unmet.mobility.models.city_curve.city_curve`.
    hyperparameters : Hyperparameters
        The kernel of the difference of a zone from the curve, and the dispersion of the counts, at the values that fit
        the zones best together.
    trips : float
        Number of observed trips in all zones.
    kept : KeptCurve or None
        What continues the curve to later bins; None if it cannot be.
    scales : InputScales or None
        What the inputs of zones are measured by; None if each zone's own rows decide.
    effects : tuple of dict
        Effects of weather and holidays: see `unmet.mobility.models.effects.find_effects`.
    """

    curve: pd.DataFrame
    hyperparameters: Hyperparameters
    trips: float
    kept: KeptCurve | None = None
    scales: InputScales | None = None
    effects: tuple[dict[str, Any], ...] = ()

    def at(self, rows: pd.DataFrame) -> Self:
        """Continue the city model to other bins, from the rows of any zone with the features of their bins."""
        assert self.kept is not None
        return replace(self, curve=continued(self.kept, rows), scales=self.kept.scales)

    def to_dict(self) -> dict[str, Any]:
        """Give a JSON-able description."""
        return {
            "start": self.curve["start"].astype("int64").tolist(),
            "unit": self.curve["start"].dt.unit,
            "curve": {name: self.curve[name].tolist() for name in (CITY_RATE, *CITY_ERRORS)},
            "trips": self.trips,
            "kernel": self.hyperparameters.kernel.to_dict(),
            "dispersion": self.hyperparameters.dispersion,
            "dispersion_sd": self.hyperparameters.dispersion_sd,
            "effects": list(self.effects),
        }

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Self:
        """Read back what `to_dict` wrote."""
        try:
            start = pd.to_datetime(np.array(description["start"]), unit=description["unit"], utc=True)
            start = start.as_unit(description["unit"])
            columns = {name: np.array(description["curve"][name], dtype=float) for name in (CITY_RATE, *CITY_ERRORS)}
            curve = pd.DataFrame({"start": start, **columns})
            kernel = kernel_from_dict(description["kernel"])
            parameters = Hyperparameters(kernel, float(description["dispersion"]), float(description["dispersion_sd"]))
            trips = float(description["trips"])
            effects = tuple(description.get("effects", ()))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise FileFormatError(f"The file does not contain a saved city model: {error!r}.") from error
        return cls(curve, parameters, trips, effects=effects)


def with_city(data: ZoneData, city: CityModel | None) -> ZoneData:
    """Add the city model to a zone's data.

    The data are returned unchanged if there is no city model, if the zone has too large a share of the city's trips, or
    if the curve does not cover its bins.
    """
    if city is None or data.observed[data.seen].sum() > _LARGEST_SHARE * city.trips:
        return data
    joined = _with_curve(data, city.curve)
    if not np.isfinite(joined.inputs[CITY_RATE]).all():
        return data
    # A zone may lack a covariate, for example if it was open only while it never rained. Its kernel is then its own.
    if not _columns(city.hyperparameters.kernel) <= set(joined.inputs):
        return joined
    return replace(joined, hyperparameters=city.hyperparameters)


def _with_curve(data: ZoneData, curve: pd.DataFrame) -> ZoneData:
    columns = [CITY_RATE, *CITY_ERRORS]
    values = curve.set_index("start")[columns].reindex(data.start).to_numpy(dtype=float)
    inputs = pd.concat([data.inputs, pd.DataFrame(values, columns=columns, index=data.inputs.index)], axis=1)
    return replace(data, inputs=inputs)


def learn_city(
    zones: Iterable[tuple[pd.DataFrame, ZoneData]], seed: int = 0, spread: Spread = in_turn
) -> CityModel | None:
    """Learn the city model; return None if there are too few zones or no trips.

    Parameters
    ----------
    zones : iterable of (DataFrame, ZoneData)
        For each zone its rows of a panel with the features of their bins, and its data. Only the data's observations
        are used, so that hidden weeks of a backtest stay hidden. The zones are read once.
    seed : int
        Decides which zones and rows the searches for hyper-parameters use.
    spread : callable
        Where evidences are evaluated: see `unmet.spreading`. It changes no digit.

    Examples
    --------
    >>> learn_city([]) is None
    True
    """
    kept: dict[int, ZoneData] = {}
    trips: list[float] = []
    found = learn_curve(_keeping_some(zones, kept, trips, np.random.default_rng(seed)), seed)
    if found is None:
        return None
    curve, of_later, effects = found
    hyperparameters = _hyperparameters([_with_curve(data, curve) for data in kept.values()], seed, spread)
    return CityModel(curve, hyperparameters, sum(trips), of_later, effects=tuple(effects))


def learn_city_from_rows(zones: Iterable[pd.DataFrame], spread: Spread = in_turn) -> CityModel | None:
    """Learn the city model from the rows of each zone, as a run has them.

    A zone whose rows cannot be read, or contradict each other, is left out; its own estimate then reports why.
    """

    def readable() -> Iterator[tuple[pd.DataFrame, ZoneData]]:
        for rows in zones:
            try:
                data = zone_data(rows)
                data.check_supply()
            except Exception:  # reported when the zone itself is estimated
                continue
            yield rows, data

    return learn_city(readable(), spread=spread)


def _keeping_some(
    zones: Iterable[tuple[pd.DataFrame, ZoneData]],
    kept: dict[int, ZoneData],
    trips: list[float],
    rng: np.random.Generator,
) -> Iterator[tuple[pd.DataFrame, ZoneData]]:
    """Pass the zones on; count trips and keep a random few, all equally likely (Vitter 1985, algorithm R)."""
    for rows, data in zones:
        if data.has_counts:
            number = len(trips)
            place = number if number < _ZONES else int(rng.integers(number + 1))
            if place < _ZONES:
                kept[place] = data
            trips.append(float(data.observed[data.seen].sum()))
        yield rows, data


def _hyperparameters(zones: Sequence[ZoneData], seed: int, spread: Spread) -> Hyperparameters:
    """Learn the hyper-parameters of the kernel of the longest record, from all zones that have its columns."""
    longest = max(zones, key=lambda data: float(np.ptp(data.inputs["t"])))
    kernel = demand_kernel(longest, city=True, trend=learn_trend(zones))
    fitted, used = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the search may end at its limit with little left to gain
        for data in zones:
            if _columns(kernel) <= set(data.inputs):
                rows = search_rows(data.seen, seed, _ROWS)
                used += len(rows)
                gp = CensoredGP(
                    kernel,
                    likelihood="negative-binomial",
                    inference=inference_for(data),
                    optimizer=None,
                )
                fitted.append(with_data(gp, data.inputs.iloc[rows], data.observed[rows], exposure=data.exposure[rows]))
        if used < _FEW_ROWS:
            spread = in_turn
        found = learn_together(fitted, max_iter=SEARCH_ITERATIONS, least_gain=_LEAST_GAIN, spread=spread)
    likelihood = found.model.likelihood
    assert isinstance(likelihood, NegativeBinomial)
    dispersion = float(np.exp(likelihood.log_dispersion))
    return Hyperparameters(found.model.kernel.with_columns_of(kernel), dispersion, found.likelihood_sd)


def _columns(kernel: Kernel) -> set[str]:
    return {str(name) for leaf in kernel.leaves() for name in leaf.columns or ()}
