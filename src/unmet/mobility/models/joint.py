"""Learn what the zones of a city share: shocks of neighbours, and riders who walk from an empty zone to the next.

Each zone is first estimated by itself. `join_city` then learns from all zones together what moved a neighbourhood or
the whole city (`unmet.mobility.models.shocks`) and how far riders walk (`unmet.mobility.models.walking`), in turns.
What that means for one zone, its `Surroundings`, goes into its second and last estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unmet._typing import Array, BoolArray, IntArray
from unmet.mobility.models.held_out import HeldOut, measure
from unmet.mobility.models.joint_city import JointCity, hours_of_day
from unmet.mobility.models.kept import KeptJoint
from unmet.mobility.models.lasting import learn_lasting
from unmet.mobility.models.shock_law import ShockLaw, learn_law, own_dispersion, refine_law
from unmet.mobility.models.shock_stretches import Pairs
from unmet.mobility.models.shocks import Shocks, estimate_shocks, refine_dispersion
from unmet.mobility.models.surroundings import rough_rates, walks_between
from unmet.mobility.models.walking import DEFAULT_WALKING, Walking, Walks
from unmet.mobility.models.walking_learning import Absorbed, learn_walking
from unmet.mobility.models.zone_table import ZoneTable
from unmet.spreading import Spread, in_turn

__all__ = ["join_city"]

_ROUNDS = 3
_GROUPS = 48  # hours of a day, apart at weekends
# Part of what a count says of its neighbour's rate that is left out where walkers between the two are learnt: of a city
# of 40 zones, more for each doubling, and at least. All of it would be right if usual rates, law and supply were known,
# as they nearly are where many zones tell. With much left out small cities have too few walkers, and with little large
# ones have too few lost riders (`docs/design/joint.md`). The distance to the curve with `_DOUBT` more left out, or less
# where that is more than all, is one standard deviation of the curve.
_LEFT_OUT, _MORE_LEFT_OUT, _LEAST_LEFT_OUT, _DOUBT = 0.625, 0.15, 0.4, 0.375
# A zone and bin that gets less of the riders of an empty neighbour than this is taken to have no walkers.
_FEW_WALKERS = 0.02
_MORE_WALKERS, _LEAST_LEFT = 0.1, 0.05  # relative step to see what shocks take up; they never take up all
_SHOCK_SEED = 2  # shocks are drawn alike for all zones
_HELD_OUT_SEED, _DRAWS = 5, 200  # of the counts of held-out bins


@dataclass(frozen=True)
class _Records:
    """The zones as they were estimated by themselves, of shape (zones, bins), and who was out when.

    Attributes
    ----------
    table : ZoneTable
        The zones.
    observed : array
        Pickups to learn from; NaN elsewhere.
    log_rate : array
        Logarithm of the expected usual rate, by the zone's own fit: the mean of the log-rate and half of its variance.
    group : array of int
        Number of the zone and the hour of the day: each has a level of its own.
    walks : Walks
        Who was out and who had stock.
    alone : array of bool
        Bins without walkers.
    """

    table: ZoneTable
    observed: Array
    log_rate: Array
    group: IntArray
    walks: Walks
    alone: BoolArray

    def own(self, log_rate: Array, shock_var: Array | float = 0.0) -> Array:
        """Pickups expected of a zone's own riders, from the mean of a log-rate and the variance of its shock."""
        return np.asarray(self.table.exposure * np.exp(log_rate + 0.5 * shock_var))

    def absorbed(self, background: Array) -> Absorbed:
        """How own levels change with the walkers: the fits were made with this background."""
        own = np.nan_to_num(self.own(self.log_rate))
        return Absorbed.by(self.group, _GROUPS * len(self.table.zones), own, background, np.isfinite(self.observed))


@dataclass(frozen=True)
class _Dispersion:
    """Of counts beside the shocks: over all zones, and of each."""

    common: float
    own: Array


def join_city(
    table: ZoneTable,
    *,
    draws: int = 400,
    seed: int = 0,
    walking: Walking | None = None,
    start: Walking = DEFAULT_WALKING,
    rounds: int = _ROUNDS,
    hidden: BoolArray | None = None,
    kept: KeptJoint | None = None,
    spread: Spread = in_turn,
) -> JointCity:
    """Learn shocks and walking from all zones, in turns.

    Parameters
    ----------
    table : ZoneTable
        The zones as they were estimated by themselves.
    draws, seed : int
        How many joint draws of the shocks, and their seed.
    walking : Walking, optional
        How far riders walk, where it is known; by default it is learnt.
    start : Walking
        The curve that the zones were estimated with (`rough_surroundings`), and where learning it starts.
    rounds : int
        Turns of shocks and walking.
    hidden : array of bool of shape (zones, bins), optional
        Bins to hold out, on which bias and coverage are measured.
    kept : KeptJoint, optional
        What was learnt from earlier bins: only the shocks are then estimated.
    spread : callable
        Where stretches of weeks are estimated: see `unmet.spreading`. It changes no digit.
    """
    if kept is not None:
        walking = kept.walking
    curve = start if walking is None else walking
    hidden = np.zeros(table.log_rate.shape, dtype=bool) if hidden is None else hidden
    records = _records(table, hidden, curve)
    walks = records.walks
    background = walks.background(curve, np.nan_to_num(np.exp(records.log_rate)))
    absorbed = records.absorbed(walks.background(start, rough_rates(records.observed, table.exposure, table.slot)))
    level = last = np.zeros(len(absorbed.own))
    shocks: Shocks | None = None
    usual, before = records.log_rate, background
    pairs = Pairs(walks.source, walks.target, walks.bin)
    left_out = _left_out(len(table.zones))
    for _ in range(rounds):
        mean_rate = records.log_rate + level[records.group]
        law, dispersion = _law(records, level, shocks, usual, before) if kept is None else _kept_law(kept, table)
        usual = mean_rate - 0.5 * law.variance  # shocks of mean 0 raise the mean of a rate
        before = background
        shocks = estimate_shocks(
            records.observed,
            table.exposure,
            usual,
            background,
            law,
            table.metres,
            dispersion=dispersion.common,
            hours=table.hours,
            start=None if shocks is None else shocks.sites,
            pairs=pairs,
            spread=spread,
        )
        riders = walks.out * _turned_away(walks, shocks, usual, left_out)
        if walking is None and len(walks):
            curve = _learn_curve(records, shocks, riders, dispersion, absorbed, curve)
        background = walks.arrivals(curve, riders, records.observed.shape)
        # A kept fit is of rates with the walkers taken off: its level is right.
        last = level
        if kept is None:
            level = np.log(absorbed.level(np.where(np.isfinite(records.observed), background, 0.0)))
    assert shocks is not None
    if walking is None and len(walks) and curve.theta.size:
        doubt = _DOUBT if left_out + _DOUBT <= 1 else -_DOUBT
        riders = walks.out * _turned_away(walks, shocks, usual, left_out + doubt)
        other = _learn_curve(records, shocks, riders, dispersion, absorbed, curve, laplace=False)
        curve = curve.with_information(_left_by_shocks(records, shocks, usual, background, dispersion, before, spread))
        curve = curve.in_doubt(other)
    elif walking is None and not len(walks):
        curve = curve.unseen()
    rate = np.nan_to_num(np.exp(usual + shocks.mean + 0.5 * shocks.var))
    joint = JointCity(
        zones=table.zones,
        start=table.start,
        law=law,
        walking=curve,
        features=shocks.space.features,
        shock_mean=shocks.mean,
        shock_var=shocks.var,
        components=shocks.draws(draws, np.random.default_rng([_SHOCK_SEED, seed])),
        own_var=shocks.own,
        precision=shocks.precision,
        pull=shocks.pull,
        background=background,
        own=table.exposure * rate,
        rate=rate,
        dispersion=dispersion.common,
        within=dispersion.own,
        lasting=_lasting(records, dispersion) if kept is None else kept.lasting,
        level=last.reshape(len(table.zones), -1),  # the shocks belong to this one
        observed=table.observed,
        walks=walks,
    )
    return replace(joint, held_out=_measure(joint, table, hidden, seed) if kept is None else kept.held_out)


def _records(table: ZoneTable, hidden: BoolArray, curve: Walking) -> _Records:
    known = np.isfinite(table.log_rate)
    observed = np.where(known & (table.exposure > 0) & ~hidden, table.observed, np.nan)
    walks = walks_between(table.exposure, np.where(np.isfinite(table.observed), table.stockout, 0.0), table.metres)
    alone = (
        np.ones(observed.shape, dtype=bool)
        if not curve.theta.size
        else walks.background(DEFAULT_WALKING, np.ones(observed.shape)) < _FEW_WALKERS
    )
    return _Records(
        table=table,
        observed=observed,
        log_rate=np.where(known, table.log_rate + 0.5 * table.log_rate_var, np.nan),
        group=_GROUPS * np.arange(len(table.zones))[:, None] + hours_of_day(table),
        walks=walks,
        alone=alone,
    )


def _law(
    records: _Records, level: Array, shocks: Shocks | None, usual: Array, background: Array
) -> tuple[ShockLaw, _Dispersion]:
    """Learn how large and wide shocks are, from the residuals or from the shocks of the turn before.

    `level` are the levels of the groups; `usual` and `background` are those that the shocks were estimated with.
    """
    table, observed = records.table, records.observed
    level = level[records.group]
    if shocks is not None:
        # A fit takes up a part of the shocks of its own bins: beside it they look too small and too smooth.
        other_weeks = table.apart + level, table.apart_error
        law = refine_law(shocks.law, shocks.space, shocks.sites, *other_weeks, table.metres, table.hours)
        return law, _Dispersion(*refine_dispersion(shocks, observed, table.exposure, usual, background))
    # Walkers would look like shocks that neighbours share: residuals are taken where there are none.
    expected = np.where(records.alone, records.own(records.log_rate + level), np.nan)
    law = learn_law(observed, expected, table.metres, table.hours)
    own = own_dispersion(observed, expected, law)
    return law, _Dispersion(float(np.average(own, weights=1e-9 + np.nansum(observed, axis=1))), own)


def _kept_law(kept: KeptJoint, table: ZoneTable) -> tuple[ShockLaw, _Dispersion]:
    own = np.array([kept.within.get(zone, kept.dispersion) for zone in table.zones])
    return kept.law, _Dispersion(kept.dispersion, own)


def _lasting(records: _Records, dispersion: _Dispersion) -> float:
    # Walkers come while a neighbour is out, for a part of the bin: they would look like riders who come in groups.
    own = np.where(records.alone, records.observed, np.nan)
    table = records.table
    return learn_lasting(table.early, own, table.exposure, records.group, dispersion.common)


def _learn_curve(
    records: _Records,
    shocks: Shocks,
    riders: Array,
    dispersion: _Dispersion,
    absorbed: Absorbed,
    start: Walking,
    *,
    laplace: bool = True,
) -> Walking:
    """Learn how far riders walk, each count by a rate that does not know it."""
    # At the level of the fits: how it changes with the curve is `absorbed`.
    fitted = records.log_rate - 0.5 * shocks.law.variance
    own = np.nan_to_num(records.own(fitted + shocks.left_out_mean, shocks.left_out_var))
    spread = dispersion.common + shocks.left_out_var
    data = records.walks, records.observed, own, riders
    return learn_walking(*data, dispersion=spread, absorbed=absorbed, start=start, laplace=laplace)


def _left_by_shocks(
    records: _Records,
    shocks: Shocks,
    usual: Array,
    background: Array,
    dispersion: _Dispersion,
    before: Array,
    spread: Spread,
) -> float:
    """Part of the information on walkers that is left when shocks are not known but estimated with them.

    Walkers come for hours, and next to one another, as shocks do: with more walkers expected, shocks come out smaller,
    and the counts fit nearly as well. The curvature of the evidence by the number of walkers is that with the shocks
    estimated again, over that with the shocks held. `before` are the walkers that the shocks were estimated with.
    """
    table, observed = records.table, np.nan_to_num(records.observed)
    seen = np.isfinite(records.observed)
    more = 1 + _MORE_WALKERS
    again = estimate_shocks(
        records.observed,
        table.exposure,
        usual,
        more * before,
        shocks.law,
        table.metres,
        dispersion=dispersion.common,
        hours=table.hours,
        start=shocks.sites,
        spread=spread,
    )

    def slope(known: Shocks, factor: float) -> float:
        own = np.nan_to_num(records.own(usual + known.left_out_mean, known.left_out_var))
        mean = np.maximum(own + factor * background, 1e-9)
        excess = dispersion.common + known.left_out_var
        return float(np.sum((background * (observed - mean) / (mean * (1 + excess * mean)))[seen]))

    here = slope(shocks, 1.0)
    held = here - slope(shocks, more)
    return float(np.clip((here - slope(again, more)) / held, _LEAST_LEFT, 1.0)) if held > 0 else 1.0


def _left_out(zones: int) -> float:
    more = _MORE_LEFT_OUT * np.log2(zones / 40)
    return float(np.clip(_LEFT_OUT + more, _LEAST_LEFT_OUT, 1.0))


def _turned_away(walks: Walks, shocks: Shocks, usual: Array, left_out: float) -> Array:
    """Rate of the source of each walk, with a part of what the target's count says of it left out."""
    at = walks.source, walks.bin
    mean, rest = shocks.elsewhere
    mean = left_out * mean + (1 - left_out) * shocks.mean[at]
    rest = left_out * rest + (1 - left_out) * shocks.var[at]
    return np.asarray(np.nan_to_num(np.exp(usual[at] + mean + 0.5 * rest)))


def _measure(joint: JointCity, table: ZoneTable, hidden: BoolArray, seed: int) -> HeldOut | None:
    rng = np.random.default_rng([_HELD_OUT_SEED, seed])
    at = hidden & np.isfinite(table.log_rate) & np.isfinite(table.observed)
    mean, var = (values[at] for values in joint.log_rate(table))
    latent = mean + np.sqrt(var) * rng.standard_normal((_DRAWS, at.sum()))
    # The walkers expected are part of what is counted.
    expected = table.exposure[at] * np.exp(latent) + joint.background[at]
    day = np.nonzero(at)[1] // max(round(24 / table.hours), 1)
    return measure(table.observed[at], expected, table.exposure[at], joint.dispersion, day, rng)
