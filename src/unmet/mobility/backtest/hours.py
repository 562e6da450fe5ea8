"""Hidden station-hours: some bins with full supply are hidden, and estimated from all the others.

Neighbours, and the hours before and after, stay visible. That is the situation of a stock-out, and asks how much of
what the same hour was like elsewhere a model uses. The joint model of the city is compared with `city-factor` and
`local-factor` (`unmet.mobility.models.factors`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from unmet._exceptions import InputError
from unmet._typing import Array, BoolArray
from unmet.metrics import crps_samples
from unmet.mobility.models.city import learn_city, with_city
from unmet.mobility.models.city_curve import LEAST_ZONES
from unmet.mobility.models.factors import city_factor, local_factor
from unmet.mobility.models.held_out import coverage, draw_counts, find_held_out
from unmet.mobility.models.joint import join_city
from unmet.mobility.models.registry import check_draws
from unmet.mobility.models.surroundings import rough_surroundings
from unmet.mobility.models.walking import DEFAULT_WALKING, Walking
from unmet.mobility.models.zone_data import ZoneData, zone_data
from unmet.mobility.models.zone_models import fit_counts, log_rates
from unmet.mobility.models.zone_table import ZoneTable, table_of
from unmet.mobility.panel.opening import AnyPanel, opened

__all__ = ["compare_hidden", "fitted_table", "hidden_hours", "score_counts"]


def hidden_hours(
    panel: AnyPanel,
    *,
    features: pd.DataFrame | None = None,
    places: dict[str, tuple[float, float]] | None = None,
    share: float = 0.05,
    seed: int = 0,
    draws: int = 200,
    progress: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """Hide a share of the fully stocked bins of all zones, and score the joint model and both factor baselines.

    Parameters
    ----------
    panel : path, PanelFile, Panel or DataFrame
        The panel.
    features : DataFrame, optional
        Columns to join to every zone's rows by ``start``.
    places : dict, optional
        Zone → latitude and longitude, in place of those of the panel.
    share : float
        Share of the bins with full supply that are hidden.
    seed : int
        Decides which.
    draws : int
        Draws of the predictive distributions.
    progress : callable
        Called with a sentence at each step.

    Returns
    -------
    DataFrame
        ``model, rows, crps, calibration_90, bias``; models ``exposure``, ``local-factor``, ``city-factor``.
    """
    if not 0 < share < 1:
        raise InputError(f"share: expected a share of the bins, above 0 and below 1; got {share}.")
    check_draws(draws, seed)
    with opened(panel) as file:
        file.set_features(features)
        pairs, masks = [], {}
        for zone in file.zones:
            rows = file.rows_of(zone)
            data = zone_data(rows)
            if data.seen.any() and data.has_counts:
                masks[data.zone] = find_held_out(data.zone, data.observed, data.exposure, seed, share, least=1.0)
                pairs.append((rows, data.without(masks[data.zone])))
        where = file.places if places is None else places
    table = fitted_table(pairs, where, seed, "Hidden hours", progress)
    progress("Estimating shocks and walking for the whole city.")
    hidden = np.zeros(table.observed.shape, dtype=bool)
    truth = np.zeros(table.observed.shape)
    for i, (rows, data) in enumerate(pairs):
        at = table.start.get_indexer(data.start)
        hidden[i, at] = masks[data.zone]
        truth[i, at] = zone_data(rows).observed
    if not hidden.any():
        raise InputError("There is no bin with full supply to hide: no hidden hour can be scored.")
    return compare_hidden(table, truth, hidden, draws, seed)


def fitted_table(
    pairs: Sequence[tuple[pd.DataFrame, ZoneData]],
    places: Mapping[str, tuple[float, float]],
    seed: int,
    task: str,
    progress: Callable[[str], None],
    walking: Walking = DEFAULT_WALKING,
) -> ZoneTable:
    """Estimate every zone by itself, as the first pass of a run does.

    Parameters
    ----------
    pairs : sequence of (DataFrame, ZoneData)
        For each zone its rows, and the data of the trial.
    places : mapping
        Zone → latitude and longitude.
    seed : int
        Seed of the fits.
    task : str
        Name of the task, for the error.
    progress : callable
        Called with a sentence at each step.
    walking : Walking
        How far riders are taken to walk in this pass.
    """
    if len(pairs) < LEAST_ZONES:
        raise InputError(f"{task} need {LEAST_ZONES} zones or more; there are {len(pairs)}.")
    progress("Learning the city model.")
    city = learn_city(pairs, seed)
    zones = [with_city(data, city) for _, data in pairs]
    progress("Fitting all zones.")
    around = rough_surroundings(zones, places, walking)
    rates = {}
    for data in zones:
        gp, _, level = fit_counts(replace(data, surroundings=around[data.zone]), seed)
        rates[data.zone] = log_rates(gp, data, level, data.seen)
    return table_of(zones, rates, places)


def compare_hidden(table: ZoneTable, truth: Array, hidden: BoolArray, draws: int, seed: int) -> pd.DataFrame:
    """Score the joint model and both factor baselines on hidden bins: of full supply, and of none in `table`."""
    rng = np.random.default_rng([seed, 1])
    y = truth[hidden]
    if not y.any():
        raise InputError("There is no pickup in the hidden hours: errors relative to them cannot be scored.")
    # Supply in the hidden bins is known, or nobody would be expected to walk there.
    stocked = replace(table, observed=np.where(hidden, truth, table.observed), exposure=table.exposure + hidden)
    joint = join_city(stocked, draws=20, seed=seed, hidden=hidden)
    mean, var = joint.log_rate(stocked)
    latent = mean[hidden] + np.sqrt(var[hidden]) * rng.standard_normal((draws, len(y)))
    # The walkers expected are part of what is counted.
    expected = np.exp(latent) + joint.background[hidden]
    found = [{"model": "exposure", **score_counts(y, expected, joint.dispersion, rng)}]
    hours = table.hours
    for name, rate in (
        ("local-factor", local_factor(table.observed, table.exposure, table.slot, table.metres, hours)),
        ("city-factor", city_factor(table.observed, table.exposure, table.slot)),
    ):
        flat = np.broadcast_to(np.maximum(rate[hidden], 1e-3), (draws, len(y)))
        found.append({"model": name, **score_counts(y, flat, _dispersion(table, rate), rng)})
    return pd.DataFrame(found)


def _dispersion(table: ZoneTable, rate: Array) -> float:
    """Relative variance of the visible counts beyond Poisson, by moments."""
    seen = np.isfinite(table.observed) & (table.exposure > 0)
    mean = (table.exposure * rate)[seen]
    return float(max(np.sum((table.observed[seen] - mean) ** 2 - mean) / np.sum(mean**2), 1e-3))


def score_counts(truth: Array, expected: Array, dispersion: float, rng: np.random.Generator) -> dict[str, float]:
    """Score negative binomial counts about draws of their mean, shape (draws, n).

    Returns
    -------
    dict
        ``rows``, ``crps``, ``calibration_90`` (coverage with ties broken evenly) and ``bias``.
    """
    drawn = draw_counts(expected, dispersion, rng)
    return {
        "rows": float(len(truth)),
        "crps": crps_samples(truth, drawn),
        "calibration_90": coverage(truth, drawn, rng),
        "bias": float(expected.mean(axis=0).sum() / truth.sum() - 1),
    }
