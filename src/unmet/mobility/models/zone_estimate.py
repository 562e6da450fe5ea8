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
from unmet._typing import Array
from unmet.mobility.models.city import Shared, with_shared
from unmet.mobility.models.zone_data import ZoneData, zone_data
from unmet.mobility.models.zone_models import MODELS, Rates

__all__ = ["DemandModel", "ZoneEstimate", "estimate_zone"]


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

    Examples
    --------
    >>> DemandModel("cgp")
    DemandModel(name='cgp', draws=400, seed=0)
    """

    name: str = "exposure"
    draws: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        if self.name not in MODELS:
            raise InputError(f"no model {self.name!r}; there are {', '.join(MODELS)}")
        if self.draws < 20:
            raise InputError(f"draws must be 20 or more for intervals to mean anything; got {self.draws}")

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
        Observed trips, likewise. Demand is observed plus lost, draw by draw.
    summary : dict
        Zone, model, convergence, repairs, CPU seconds.
    """

    rows: pd.DataFrame
    lost: Array
    observed: Array
    summary: dict[str, Any]


def estimate_zone(panel: pd.DataFrame, model: DemandModel, shared: Shared | None = None) -> ZoneEstimate:
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
    data = with_shared(zone_data(panel), shared)
    if not data.seen.any():
        raise InputError("No bin had anything to rent, so nothing can be learnt of its demand.")
    rates = MODELS[model.name](data, model.draws, _seed(data.zone, model.seed))
    counted = np.isfinite(data.observed)
    lost = np.zeros((168, model.draws))
    np.add.at(lost, data.slot[counted], rates.lost.T[counted])
    summary = {
        "zone": data.zone,
        "model": model.name,
        "message": "",
        **rates.summary,
        **data.notes,
        "cpu_seconds": time.process_time() - began,
    }
    observed = np.asarray(np.bincount(data.slot[counted], data.observed[counted], minlength=168), dtype=float)
    return ZoneEstimate(_rows(data, rates), lost, observed, summary)


def _seed(zone: str, seed: int) -> int:
    """A seed of the zone's own, whatever the order zones are worked on."""
    return int(np.random.SeedSequence([seed, *zone.encode()]).generate_state(1)[0] // 2)


def _rows(data: ZoneData, rates: Rates) -> pd.DataFrame:
    lost_q05, lost_q95 = np.quantile(rates.lost, [0.05, 0.95], axis=0)
    lost_q50 = np.median(rates.lost, axis=0)
    lost_sd = rates.lost.std(axis=0)
    seen = np.isfinite(data.observed)
    base = np.where(seen, data.observed, 0.0)
    rows = pd.DataFrame(
        {
            "zone": data.zone,
            "start": data.start,
            "observed": data.observed,
            "exposure": data.exposure,
            "censored": data.censored,
            "rate_mean": rates.mean,
            "rate_sd": rates.sd,
            "rate_q05": rates.q05,
            "rate_q95": rates.q95,
            "demand_mean": base + rates.lost_mean,
            "demand_sd": lost_sd,
            "demand_q05": base + lost_q05,
            "demand_q50": base + lost_q50,
            "demand_q95": base + lost_q95,
            "lost_mean": rates.lost_mean,
            "lost_sd": lost_sd,
            "lost_q05": lost_q05,
            "lost_q95": lost_q95,
            "flags": data.flags.astype(str),
        }
    )
    if rates.future is not None and not seen.all():
        ahead = rates.future[:, ~seen]
        rows.loc[~seen, "demand_mean"] = ahead.mean(axis=0)
        rows.loc[~seen, "demand_sd"] = ahead.std(axis=0)
        for name, q in (("demand_q05", 0.05), ("demand_q50", 0.5), ("demand_q95", 0.95)):
            rows.loc[~seen, name] = np.quantile(ahead, q, axis=0)
    if rates.shared is not None:
        names = [f"rate_shared_{k}" for k in range(1, len(rates.shared) + 1)]
        rows = pd.concat([rows, pd.DataFrame(rates.shared.T, columns=names, index=rows.index)], axis=1)
    return rows
