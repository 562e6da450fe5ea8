"""Latent demand of one zone: the rate to plan with, the demand that was there, and the trips that were lost.

Two questions are kept apart. The **rate** is the expected demand of a full bin: the latent function. The **demand** is
how many trips were wanted in that very bin given what was seen: observed plus lost; where supply never ran out it is
what was observed.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array, IntArray
from unmet.mobility.models.city import Shared, with_shared
from unmet.mobility.models.joint import Surroundings
from unmet.mobility.models.walking import NO_WALKING, Walking
from unmet.mobility.models.zone_data import ZoneData, zone_data
from unmet.mobility.models.zone_models import MODELS, Rates, fit_counts, log_rate

__all__ = ["DemandModel", "ZoneEstimate", "ZoneFit", "estimate_zone", "fit_zone"]


@dataclass(frozen=True)
class DemandModel:
    """Which model, and how it is run.

    Parameters
    ----------
    name : str
        ``exposure`` (default: negative binomial counts with exposure), ``cgp``, ``ncgp``, ``ncgp-a``, ``tobit``, or a
        baseline: ``observed``, ``weekly-mean``, ``drop-censored``.
    draws : int
        Joint posterior draws, from which totals and intervals of lost trips are made.
    seed : int
        Together with the zone's name decides all randomness but what is drawn alike for all zones.
    walk : str or tuple of float
        Riders who find a zone empty and walk on: ``learn`` (from the records), ``none``, or the chances to walk 0, 150,
        250, 350 and 500 metres, falling.

    Examples
    --------
    >>> DemandModel("cgp")
    DemandModel(name='cgp', draws=400, seed=0, walk='learn')
    """

    name: str = "exposure"
    draws: int = 400
    seed: int = 0
    walk: str | tuple[float, ...] = "learn"

    def __post_init__(self) -> None:
        if self.name not in MODELS:
            raise InputError(f"no model {self.name!r}; there are {', '.join(MODELS)}")
        if self.draws < 20:
            raise InputError(f"draws must be 20 or more for intervals to mean anything; got {self.draws}")
        if not isinstance(self.walk, str):
            object.__setattr__(self, "walk", tuple(self.walk))
        self.walking()  # raises where it is no curve

    def walking(self) -> Walking | None:
        """The walking curve that was given; None where it is to be learnt."""
        if isinstance(self.walk, tuple):
            return Walking.from_values(np.array(self.walk))
        if self.walk not in ("learn", "none"):
            raise InputError(f"walk must be 'learn', 'none' or five falling chances; got {self.walk!r}")
        return None if self.walk == "learn" else NO_WALKING

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description."""
        return asdict(self)

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> DemandModel:
        """Read back what `to_dict` wrote."""
        return replace(cls(), **description)


@dataclass(frozen=True)
class ZoneEstimate:
    """What was estimated for one zone.

    Attributes
    ----------
    rows : DataFrame
        One row per bin; see the module's description of rate, demand and lost. Columns ``rate_shared_1`` and so on,
        if present, are the changes of the rate per standard deviation of an error that all zones share.
    lost : array of shape (168, draws)
        Draws of lost trips, summed by local hour of the week (0 is Monday from midnight).
    observed : array of shape (168,)
        Observed trips, likewise. Wanted is observed less walked in, plus walked on and lost, draw by draw.
    summary : dict
        Zone, model, convergence, repairs, CPU seconds.
    walked_on, walked_in : arrays of shape (168, draws) or None
        Draws of riders who came here first and were served elsewhere, and the other way round, likewise. None where
        nobody walks.
    """

    rows: pd.DataFrame
    lost: Array
    observed: Array
    summary: dict[str, Any]
    walked_on: Array | None = None
    walked_in: Array | None = None


def estimate_zone(
    panel: pd.DataFrame, model: DemandModel, shared: Shared | None = None, around: Surroundings | None = None
) -> ZoneEstimate:
    """Estimate rate, demand and lost trips of one zone.

    Parameters
    ----------
    panel : DataFrame
        The zone's rows of a panel, with any features (``holiday``, weather columns) beside. Rows whose column
        ``future`` is true are bins still to come.
    model : DemandModel
        Which model.
    shared : Shared, optional
        What this zone shares with others; only the model ``exposure`` looks at it.
    around : Surroundings, optional
        Shocks and walkers of the neighbourhood, from `unmet.mobility.models.joint.City.of`; likewise.

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
    data = replace(with_shared(zone_data(panel), shared), surroundings=around)
    if not data.seen.any():
        raise InputError("No bin had anything to rent, so nothing can be learnt of its demand.")
    rates = MODELS[model.name](data, model.draws, _seed(data.zone, model.seed))
    counted = np.isfinite(data.observed)

    def by_hour(draws: Array | None) -> Array | None:
        if draws is None:
            return None
        total = np.zeros((168, model.draws))
        np.add.at(total, data.slot[counted], draws.T[counted])
        return total

    lost = by_hour(rates.lost)
    assert lost is not None
    summary = {
        "zone": data.zone,
        "model": model.name,
        "message": "",
        **rates.summary,
        **data.notes,
        "cpu_seconds": time.process_time() - began,
    }
    observed = np.asarray(np.bincount(data.slot[counted], data.observed[counted], minlength=168), dtype=float)
    walked = by_hour(rates.walked_on), by_hour(rates.walked_in)
    return ZoneEstimate(_rows(data, rates), lost, observed, summary, *walked)


@dataclass(frozen=True)
class ZoneFit:
    """A zone as `unmet.mobility.models.joint.table_of` needs it: its record, and its log-rate without shocks."""

    zone: str
    start: pd.DatetimeIndex
    minutes: float
    observed: Array
    exposure: Array
    stockout: Array
    slot: IntArray
    log_rate: Array
    log_rate_var: Array


def fit_zone(
    panel: pd.DataFrame, model: DemandModel, shared: Shared | None = None, around: Surroundings | None = None
) -> ZoneFit:
    """Fit the log-rate of one zone, without draws; parameters as of `estimate_zone`."""
    data = replace(with_shared(zone_data(panel), shared), surroundings=around)
    if not data.seen.any() or not data.has_counts:
        raise InputError("No bin had anything to rent, or its pickups are no counts.")
    gp, _, level = fit_counts(data, _seed(data.zone, model.seed))
    mean, var = log_rate(gp, data, level)
    if around is not None:  # the mean rate, as of a zone that knows of no shocks
        mean = mean + 0.5 * around.prior_var
    record = (data.zone, data.start, data.minutes, data.observed, data.exposure, data.stockout, data.slot)
    return ZoneFit(*record, mean, var)


def _seed(zone: str, seed: int) -> int:
    """A seed of the zone's own, whatever the order zones are worked on."""
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
    quantiles = np.quantile(draws, list(_OF_DRAWS.values()), axis=0)
    return {
        f"{name}_mean": draws.mean(axis=0),
        f"{name}_sd": draws.std(axis=0),
        **{f"{name}_{k}": value for k, value in zip(_OF_DRAWS, quantiles, strict=True)},
    }
