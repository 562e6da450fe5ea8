"""Latent demand of one zone: the rate, the demand and the lost trips of each bin.

The **rate** is the expected demand of a bin with full supply: the number to plan with. The **demand** is the number of
trips wanted in that particular bin, given its records: observed plus lost. It equals the observed number if supply
never ran out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from unmet._exceptions import InputError
from unmet._numbers import read_numbers
from unmet._typing import Array, BoolArray, IntArray
from unmet.mobility.clock.bins import HOURS_OF_WEEK
from unmet.mobility.clock.periods import period_numbers
from unmet.mobility.models.city import CityModel, with_city
from unmet.mobility.models.held_out import find_held_out
from unmet.mobility.models.kept import KeptFit
from unmet.mobility.models.rates import Rates, mid_quantiles
from unmet.mobility.models.registry import DEFAULT_DRAWS, DEFAULT_MODEL, MODELS, ZoneModel, check_draws, find_model
from unmet.mobility.models.surroundings import Surroundings
from unmet.mobility.models.walking import NO_WALKING, Walking
from unmet.mobility.models.zone_data import ZoneData, zone_data
from unmet.mobility.models.zone_models import fit_counts, log_rates

__all__ = ["DemandModel", "ZoneEstimate", "ZoneFit", "estimate_zone", "fit_usual_rate"]


@dataclass(frozen=True)
class DemandModel:
    """A demand model and the settings of its run.

    Parameters
    ----------
    name : str
        Name of the model: one of `unmet.mobility.models.registry.MODELS`, or that of `record`.
    draws : int
        Number of joint posterior draws, from which totals and intervals of lost trips are made.
    seed : int
        Together with the zone's name, decides all randomness except errors that all zones share.
    record : ZoneModel, optional
        A model of one's own.
    walk : str or tuple of float
        Riders who find a zone empty and walk on: ``learn`` (from the records), ``none``, or the chances to walk 0, 150,
        250, 350 and 500 metres, falling.

    Examples
    --------
    >>> DemandModel("cgp")
    DemandModel(name='cgp', draws=400, seed=0, walk='learn')
    """

    name: str = DEFAULT_MODEL
    draws: int = DEFAULT_DRAWS
    seed: int = 0
    record: ZoneModel | None = field(default=None, repr=False)
    walk: str | tuple[float, ...] = "learn"

    def __post_init__(self) -> None:
        if self.zone_model.name != self.name:
            raise InputError(f"name: expected that of the record, {self.zone_model.name!r}; got {self.name!r}.")
        check_draws(self.draws, self.seed)
        if not isinstance(self.walk, str):
            object.__setattr__(self, "walk", tuple(read_numbers(self.walk, "walk").ravel().tolist()))
        self.walking()  # raises if it is no curve
        if isinstance(self.walk, tuple) and not self.zone_model.uses_city:
            raise InputError(
                f"walk: a walking curve has no effect on model {self.name}, which estimates zones by themselves. "
                f"Leave it out, or use model {DEFAULT_MODEL}."
            )

    def walking(self) -> Walking | None:
        """The walking curve that was given; None if it is to be learnt."""
        if isinstance(self.walk, tuple):
            return Walking.from_values(np.array(self.walk))
        if self.walk not in ("learn", "none"):
            raise InputError(f"walk: expected learn, none, a .csv file or five falling chances; got {self.walk!r}.")
        return None if self.walk == "learn" else NO_WALKING

    @property
    def zone_model(self) -> ZoneModel:
        """The model."""
        return find_model(self.record or self.name)

    def to_dict(self) -> dict[str, Any]:
        """Give everything that decides an estimate, as JSON-able values."""
        model = self.zone_model
        own = {} if self.name in MODELS else {"function": model.source}
        joint = {"walk": self.walk} if model.uses_city else {}
        return {"name": self.name, "draws": self.draws, "seed": self.seed, **joint, **own}

    def describe(self) -> dict[str, Any]:
        """Describe the model for ``run.json`` and the report."""
        return self.zone_model.to_dict()


@dataclass(frozen=True)
class ZoneEstimate:
    """The estimate of one zone.

    Attributes
    ----------
    rows : DataFrame
        One row per bin; see the module's description of rate, demand and lost. Columns ``rate_shared_1`` and so on,
        if present, are the changes of the rate per standard deviation of an error that all zones share.
    lost : array of shape (168, draws)
        Draws of lost trips, summed by local hour of the week (0 is Monday from midnight).
    observed : array of shape (168,)
        Observed trips by hour of the week. Wanted is observed less walked in, plus walked on and lost, draw by draw.
    summary : dict
        Zone, model, convergence, repairs, CPU seconds.
    walked_on, walked_in : arrays of shape (168, draws) or None
        Draws, by hour of the week, of riders who came here first and were served elsewhere, and of riders recorded here
        who came to another zone first. None if nobody walks.
    kept : KeptFit or None
        The fit, for runs with later bins.
    before : tuple of arrays or None
        Observed, lost, walked on and walked in of bins before `settled`, by hour of the week.
    periods, before_periods : tuples of arrays or None
        Numbers of periods (`unmet.mobility.clock.periods`), and observed, lost, walked on and walked in by period: of
        all bins, and of those before `settled`.
    """

    rows: pd.DataFrame
    lost: Array
    observed: Array
    summary: dict[str, Any]
    walked_on: Array | None = None
    walked_in: Array | None = None
    kept: KeptFit | None = None
    before: tuple[Array, Array, Array, Array] | None = None
    periods: tuple[NDArray[Any], ...] | None = None
    before_periods: tuple[NDArray[Any], ...] | None = None


def estimate_zone(
    panel: pd.DataFrame,
    model: DemandModel,
    city: CityModel | None = None,
    around: Surroundings | None = None,
    kept: KeptFit | None = None,
    settled: pd.Timestamp | None = None,
) -> ZoneEstimate:
    """Estimate rate, demand and lost trips of one zone.

    Parameters
    ----------
    panel : DataFrame
        The zone's rows of a panel, with the features of their bins (``holiday``, weather columns). Rows whose column
        ``future`` is true are bins after the end of the records.
    model : DemandModel
        The model and its settings.
    city : CityModel, optional
        The city model, for models that use it.
    around : Surroundings, optional
        Shocks and walkers of the neighbourhood, from `unmet.mobility.models.joint.JointCity.of`, likewise.
    kept : KeptFit, optional
        A fit of earlier bins, to use instead of a new one.
    settled : Timestamp, optional
        Bins that start before are also summed by themselves, for a run that estimates only later bins again.

    Examples
    --------
    >>> start = pd.date_range("2024-01-01", periods=336, freq="h", tz="UTC")
    >>> panel = pd.DataFrame({"zone": "a", "start": start, "start_local": start.tz_localize(None), "minutes": 60})
    >>> panel["observed"] = 2
    >>> for state in ("stockout", "closed", "unknown"):
    ...     panel[f"{state}_minutes"] = 0
    >>> panel.loc[100, "stockout_minutes"] = 30
    >>> panel["available_minutes"] = 60 - panel["stockout_minutes"]
    >>> panel["exposure"], panel["censored"] = panel["available_minutes"] / 60, panel["stockout_minutes"] > 0
    >>> rows = estimate_zone(panel, DemandModel("weekly-mean")).rows
    >>> rows.loc[[99, 100], ["observed", "exposure", "demand_mean"]].round(1)
         observed  exposure  demand_mean
    99        2.0       1.0          2.0
    100       2.0       0.5          3.3
    """
    began = time.process_time()
    data = _arranged(panel, city, around, kept)
    if not data.seen.any() and kept is None:
        raise InputError(_nothing_to_learn(panel))
    if model.zone_model.supply == "exposure" and kept is None:
        data.check_supply()
    rates = model.zone_model(data, model.draws, _seed(data.zone, model.seed))
    counted = np.isfinite(data.observed)
    summary = {
        "zone": data.zone,
        "model": model.name,
        "message": "",
        **rates.summary,
        **data.notes,
        "cpu_seconds": time.process_time() - began,
    }
    numbers, period = np.unique(period_numbers(data.local), return_inverse=True)
    hours, periods = (HOURS_OF_WEEK, data.slot), (len(numbers), period)
    observed, lost, on, came = _sums(data, rates, *hours, counted)
    walks = rates.walked_on is not None and rates.walked_in is not None
    before: tuple[Array, Array, Array, Array] | None = None
    before_periods: tuple[NDArray[Any], ...] | None = None
    if settled is not None and rates.kept is not None and walks:
        early = counted & (data.start < settled)
        before = _sums(data, rates, *hours, early)
        before_periods = (numbers, *_halved(_sums(data, rates, *periods, early)))
    return ZoneEstimate(
        _rows(data, rates),
        lost,
        observed,
        summary,
        walked_on=on if walks else None,
        walked_in=came if walks else None,
        kept=rates.kept,
        before=before,
        periods=(numbers, *_halved(_sums(data, rates, *periods, counted))),
        before_periods=before_periods,
    )


def _halved(sums: tuple[Array, ...]) -> tuple[NDArray[np.float32], ...]:
    """Halve the memory of sums of counts, which workers send by the thousand."""
    return tuple(values.astype(np.float32) for values in sums)


def _sums(
    data: ZoneData, rates: Rates, count: int, group: IntArray, bins: BoolArray
) -> tuple[Array, Array, Array, Array]:
    """Sum observed trips and the draws of lost, walked on and walked in over some bins, by group."""
    adding = csr_matrix((np.ones(bins.sum()), (group[bins], np.flatnonzero(bins))), shape=(count, len(data)))
    observed = np.asarray(adding @ np.where(bins, data.observed, 0.0))
    nobody = np.zeros_like(rates.lost)
    draws = (rates.lost, *(nobody if d is None else d for d in (rates.walked_on, rates.walked_in)))
    lost, on, came = (np.asarray(adding @ values.T) for values in draws)
    return observed, lost, on, came


def _nothing_to_learn(panel: pd.DataFrame) -> str:
    """Describe why no row of a zone has both pickups and supply."""
    past = panel[~panel["future"].astype(bool)] if "future" in panel else panel
    trips = past["observed"].sum()
    why, hint = "No bin had anything to rent", ""
    if (past["unknown_minutes"] >= past["minutes"]).all():
        why = "The zone has no record in this period"
        if trips > 0:
            why = f"Its {trips:,.0f} pickups are recorded, but its supply is unknown in every bin"
            hint = (
                " Give its status (--status). Without any status, supply is computed from trips if stations have a "
                "capacity and nearly all trips have stations and times of both ends: see the remarks of the panel."
            )
    return f"{why}, so its demand cannot be estimated.{hint}"


def _arranged(
    panel: pd.DataFrame, city: CityModel | None, around: Surroundings | None, kept: KeptFit | None
) -> ZoneData:
    """Arrange the rows of a zone, with all that is known of it."""
    data = zone_data(panel, None if city is None else city.scales)
    return replace(with_city(data, city), surroundings=around, kept=kept)


@dataclass(frozen=True)
class ZoneFit:
    """A zone as `unmet.mobility.models.zone_table.table_of` needs it: its record, and its log-rate without shocks.

    `apart` is the log-rate by the other weeks alone: see `unmet.mobility.models.zone_models.log_rates`.
    """

    zone: str
    start: pd.DatetimeIndex
    minutes: float
    observed: Array
    exposure: Array
    stockout: Array
    slot: IntArray
    early: Array
    log_rate: Array
    log_rate_var: Array
    apart: Array
    apart_error: Array


def fit_usual_rate(
    panel: pd.DataFrame,
    model: DemandModel,
    city: CityModel | None = None,
    around: Surroundings | None = None,
    kept: KeptFit | None = None,
) -> ZoneFit:
    """Fit the log-rate of one zone, without draws and held-out bins; parameters as of `estimate_zone`."""
    data = _arranged(panel, city, around, kept)
    if kept is None and (not data.seen.any() or not data.has_counts):
        raise InputError("No bin had anything to rent, or the pickups are not counts.")
    hidden = find_held_out(data.zone, data.observed, data.exposure, model.seed)
    learnt_from = data.without(hidden)
    gp, _, level = fit_counts(learnt_from, _seed(data.zone, model.seed))
    mean, var, apart, apart_error = log_rates(gp, data, level, learnt_from.seen)
    if around is not None:  # the mean rate, as of a zone without known shocks
        mean, apart = mean + 0.5 * around.prior_var, apart + 0.5 * around.prior_var
    record = (data.zone, data.start, data.minutes, data.observed, data.exposure, data.stockout, data.slot, data.early)
    return ZoneFit(*record, mean, var, apart, apart_error)


def _seed(zone: str, seed: int) -> int:
    """Derive the zone's seed from its name, so that the order of zones does not matter."""
    return int(np.random.SeedSequence([seed, *zone.encode()]).generate_state(1)[0] // 2)


_OF_DRAWS = {"q05": 0.05, "q50": 0.5, "q95": 0.95}


def _rows(data: ZoneData, rates: Rates) -> pd.DataFrame:
    seen = np.isfinite(data.observed)
    base = np.where(seen, data.observed, 0.0)
    nobody = np.zeros((1, len(data)))
    on = nobody if rates.walked_on is None else rates.walked_on
    came = nobody if rates.walked_in is None else rates.walked_in
    wanted = _summary("wanted", base - came + on + rates.lost)
    # The mean of the lost is known better than that of its draws.
    wanted["wanted_mean"] = base - came.mean(axis=0) + on.mean(axis=0) + rates.lost_mean
    if rates.future is not None and not seen.all():
        for name, values in _summary("wanted", rates.future[:, ~seen]).items():
            wanted[name][~seen] = values
    lost = {**_summary("lost", rates.lost), "lost_mean": rates.lost_mean}
    columns = {
        "zone": data.zone,
        "start": data.start,
        "observed": data.observed,
        "exposure": data.exposure,
        "censored": data.censored,
        "rate_mean": rates.mean,
        "rate_sd": rates.sd,
        "rate_q05": rates.q05,
        "rate_q95": rates.q95,
        **{f"demand_{k}": wanted[f"wanted_{k}"] for k in ("mean", "sd", "q05", "q50", "q95")},
        **{f"lost_{k}": lost[f"lost_{k}"] for k in ("mean", "sd", "q05", "q95")},
        "usual_rate": rates.mean if rates.usual is None else rates.usual,
    }
    for name, draws in (("served", base - came), ("walked_on", on), ("walked_in", came)):
        summary = _summary(name, draws)
        columns |= {f"{name}_{k}": summary[f"{name}_{k}"] for k in ("mean", "sd", "q05", "q95")}
    columns |= {f"wanted_{k}": wanted[f"wanted_{k}"] for k in ("mean", "sd", "q05", "q95")}
    rows = pd.DataFrame({**columns, "flags": data.flags.astype(str)})
    if rates.shared is not None:
        names = [f"rate_shared_{k}" for k in range(1, len(rates.shared) + 1)]
        rows = pd.concat([rows, pd.DataFrame(rates.shared.T, columns=names, index=rows.index)], axis=1)
    return rows


def _summary(name: str, draws: Array) -> dict[str, Array]:
    """Mean, standard deviation and quantiles of each bin over draws."""
    quantiles = mid_quantiles(draws, list(_OF_DRAWS.values()))
    return {
        f"{name}_mean": draws.mean(axis=0),
        f"{name}_sd": draws.std(axis=0),
        **{f"{name}_{k}": value for k, value in zip(_OF_DRAWS, quantiles, strict=True)},
    }
