"""Latent demand of one zone: the rate, the demand and the lost trips of each bin.

The **rate** is the expected demand of a bin with full supply: the number to plan with. The **demand** is the number of
trips wanted in that particular bin, given its records: observed plus lost. It equals the observed number if supply
never ran out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array
from unmet.mobility.clock.bins import HOURS_OF_WEEK
from unmet.mobility.models.city import CityModel, with_city
from unmet.mobility.models.rates import Rates
from unmet.mobility.models.registry import DEFAULT_MODEL, MODELS, ZoneModel, find_model
from unmet.mobility.models.zone_data import ZoneData, zone_data

__all__ = ["DemandModel", "ZoneEstimate", "estimate_zone"]


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

    Examples
    --------
    >>> DemandModel("cgp")
    DemandModel(name='cgp', draws=400, seed=0)
    """

    name: str = DEFAULT_MODEL
    draws: int = 400
    seed: int = 0
    record: ZoneModel | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.zone_model.name != self.name:
            raise InputError(f"name: expected that of the record, {self.zone_model.name!r}; got {self.name!r}.")
        if self.draws < 20:
            raise InputError(f"draws: expected 20 or more, so that intervals mean something; got {self.draws}.")

    @property
    def zone_model(self) -> ZoneModel:
        """The model."""
        return find_model(self.record or self.name)

    def to_dict(self) -> dict[str, Any]:
        """Give everything that decides an estimate, as JSON-able values."""
        own = {} if self.name in MODELS else {"function": self.zone_model.source}
        return {"name": self.name, "draws": self.draws, "seed": self.seed, **own}

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
        Observed trips by hour of the week. Demand is observed plus lost, draw by draw.
    summary : dict
        Zone, model, convergence, repairs, CPU seconds.
    """

    rows: pd.DataFrame
    lost: Array
    observed: Array
    summary: dict[str, Any]


def estimate_zone(panel: pd.DataFrame, model: DemandModel, city: CityModel | None = None) -> ZoneEstimate:
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
    data = with_city(zone_data(panel), city)
    if not data.seen.any():
        raise InputError("No bin had anything to rent, so its demand cannot be estimated.")
    rates = model.zone_model(data, model.draws, _seed(data.zone, model.seed))
    counted = np.isfinite(data.observed)
    lost = np.zeros((HOURS_OF_WEEK, model.draws))
    np.add.at(lost, data.slot[counted], rates.lost.T[counted])
    summary = {
        "zone": data.zone,
        "model": model.name,
        "message": "",
        **rates.summary,
        **data.notes,
        "cpu_seconds": time.process_time() - began,
    }
    observed = np.asarray(np.bincount(data.slot[counted], data.observed[counted], minlength=HOURS_OF_WEEK), dtype=float)
    return ZoneEstimate(_rows(data, rates), lost, observed, summary)


def _seed(zone: str, seed: int) -> int:
    """Derive the zone's seed from its name, so that the order of zones does not matter."""
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
