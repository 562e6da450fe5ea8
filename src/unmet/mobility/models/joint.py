"""Learn what the zones of a city share: shocks of neighbours, and riders who walk from an empty zone to the next.

Each zone is first estimated by itself. `join_city` then learns from all zones together what moved a neighbourhood or
the whole city (`unmet.mobility.models.shocks`) and how far riders walk (`unmet.mobility.models.walking`), in turns.
What that means for one zone, its `Surroundings`, goes into its second and last estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unmet._typing import Array, BoolArray
from unmet.mobility.models.held_out import HeldOut, measure
from unmet.mobility.models.joint_city import JointCity
from unmet.mobility.models.joint_records import JointRecords, joint_records
from unmet.mobility.models.kept import KeptJoint
from unmet.mobility.models.lasting import learn_lasting
from unmet.mobility.models.shock_law import ShockLaw, learn_law, own_dispersion, refine_law
from unmet.mobility.models.shock_stretches import Pairs
from unmet.mobility.models.shocks import Shocks, estimate_shocks, refine_dispersion
from unmet.mobility.models.surroundings import rough_rates
from unmet.mobility.models.walking import DEFAULT_WALKING, Walking
from unmet.mobility.models.walking_learning import Absorbed, learn_walking
from unmet.mobility.models.zone_table import ZoneTable
from unmet.spreading import Spread, in_turn

__all__ = ["join_city"]

_ROUNDS = 3
# Part of what a count says of its neighbour's rate that is left out where walkers between the two are learnt: of a city
# of 40 zones, more for each doubling, and at least. All of it would be right if usual rates, law and supply were known,
# as they nearly are where many zones tell. With much left out small cities have too few walkers, and with little large
# ones have too few lost riders (`docs/design/joint.md`). The distance to the curve with `_DOUBT` more left out, or less
# where that is more than all, is one standard deviation of the curve.
_LEFT_OUT, _MORE_LEFT_OUT, _LEAST_LEFT_OUT, _DOUBT = 0.625, 0.15, 0.4, 0.375
_MORE_WALKERS, _LEAST_LEFT = 0.1, 0.05  # relative step to see what shocks take up; they never take up all
_SHOCK_SEED = 2  # shocks are drawn alike for all zones
_HELD_OUT_SEED, _DRAWS = 5, 200  # of the counts of held-out bins


@dataclass(frozen=True)
class _Dispersion:
    """Of counts beside the shocks: over all zones, and of each."""

    common: float
    own: Array


@dataclass(frozen=True)
class _City:
    """Records and settings that all turns share.

    Attributes
    ----------
    records : JointRecords
        The zones as they were estimated by themselves.
    absorbed : Absorbed
        How own levels change with the walkers.
    kept : KeptJoint, optional
        What was learnt from earlier bins.
    learns : bool
        Whether the walking curve is learnt.
    curve : Walking
        The curve of the first turn.
    background : array of shape (zones, bins)
        Walkers expected before the first turn.
    pairs : Pairs
        Places between which riders walk.
    left_out : float
        Part of what a count says of its neighbour's rate that is left out.
    spread : callable
        Where stretches of weeks are estimated.
    """

    records: JointRecords
    absorbed: Absorbed
    kept: KeptJoint | None
    learns: bool
    curve: Walking
    background: Array
    pairs: Pairs
    left_out: float
    spread: Spread


@dataclass(frozen=True)
class _Turn:
    """Result of a turn of shocks and walking.

    Attributes
    ----------
    level : array
        Logarithm of the level of each group beside its fit, with which the shocks were estimated.
    dispersion : _Dispersion
        Of counts beside the shocks.
    usual : array of shape (zones, bins)
        Mean log-rate without shocks.
    before : array of shape (zones, bins)
        Walkers expected, with which the shocks were estimated.
    shocks : Shocks
        The shocks.
    curve : Walking
        How far riders walk, by these shocks.
    background : array of shape (zones, bins)
        Walkers expected by that curve.
    """

    level: Array
    dispersion: _Dispersion
    usual: Array
    before: Array
    shocks: Shocks
    curve: Walking
    background: Array


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
    hidden = np.zeros(table.log_rate.shape, dtype=bool) if hidden is None else hidden
    city = _city(table, hidden, walking, start, kept, spread)
    turn: _Turn | None = None
    for _ in range(rounds):
        turn = _take_turn(city, turn)
    assert turn is not None
    joint = _joint(city, turn, _curve_in_doubt(city, turn), draws, seed)
    return replace(joint, held_out=_measure(joint, table, hidden, seed) if kept is None else kept.held_out)


def _city(
    table: ZoneTable,
    hidden: BoolArray,
    walking: Walking | None,
    start: Walking,
    kept: KeptJoint | None,
    spread: Spread,
) -> _City:
    """Arrange what is known before the first turn; the arguments are those of `join_city`."""
    if kept is not None:
        walking = kept.walking
    curve = start if walking is None else walking
    records = joint_records(table, hidden, curve)
    walks = records.walks
    if walking is None and not len(walks):
        curve = curve.unseen()
    background = walks.background(curve, np.nan_to_num(np.exp(records.log_rate)))
    absorbed = records.absorbed(walks.background(start, rough_rates(records.observed, table.exposure, table.slot)))
    return _City(
        records=records,
        absorbed=absorbed,
        kept=kept,
        learns=walking is None and len(walks) > 0,
        curve=curve,
        background=background,
        pairs=Pairs(walks.source, walks.target, walks.bin),
        left_out=_left_out(len(table.zones)),
        spread=spread,
    )


def _take_turn(city: _City, last: _Turn | None) -> _Turn:
    """Learn the shocks, with the walkers of the last turn, and then how far riders walk, with these shocks."""
    records, table = city.records, city.records.table
    level = np.zeros(len(city.absorbed.own)) if last is None else _level(city, last.background)
    law, dispersion = _law(records, level, last) if city.kept is None else _kept_law(city.kept, table)
    # Shocks of mean 0 raise the mean of a rate.
    usual = records.log_rate + level[records.group] - 0.5 * law.variance
    before = city.background if last is None else last.background
    shocks = estimate_shocks(
        records.observed,
        table.exposure,
        usual,
        before,
        law,
        table.metres,
        dispersion=dispersion.common,
        hours=table.hours,
        start=None if last is None else last.shocks.sites,
        pairs=city.pairs,
        spread=city.spread,
    )
    curve = city.curve if last is None else last.curve
    riders = _riders(city, shocks, usual, city.left_out)
    if city.learns:
        curve = _learn_curve(city, shocks, dispersion, riders, curve)
    background = records.walks.arrivals(curve, riders, records.observed.shape)
    return _Turn(level, dispersion, usual, before, shocks, curve, background)


def _level(city: _City, background: Array) -> Array:
    """Logarithm of the level of each group beside its fit, given the walkers of each bin."""
    if city.kept is not None:  # a kept fit is of rates with the walkers taken off: its level is right
        return np.zeros(len(city.absorbed.own))
    seen = np.isfinite(city.records.observed)
    return np.log(city.absorbed.level(np.where(seen, background, 0.0)))


def _curve_in_doubt(city: _City, turn: _Turn) -> Walking:
    """Return the curve with the doubt that shocks and the part left out add, if it was learnt."""
    curve = turn.curve
    if not city.learns or not curve.theta.size:
        return curve
    doubt = _DOUBT if city.left_out + _DOUBT <= 1 else -_DOUBT
    riders = _riders(city, turn.shocks, turn.usual, city.left_out + doubt)
    other = _learn_curve(city, turn.shocks, turn.dispersion, riders, curve, laplace=False)
    return curve.with_information(_left_by_shocks(city, turn)).in_doubt(other)


def _joint(city: _City, turn: _Turn, curve: Walking, draws: int, seed: int) -> JointCity:
    records, table, shocks = city.records, city.records.table, turn.shocks
    rate = np.nan_to_num(np.exp(turn.usual + shocks.mean + 0.5 * shocks.var))
    return JointCity(
        zones=table.zones,
        start=table.start,
        law=shocks.law,
        walking=curve,
        features=shocks.space.features,
        shock_mean=shocks.mean,
        shock_var=shocks.var,
        components=shocks.draws(draws, np.random.default_rng([_SHOCK_SEED, seed])),
        own_var=shocks.own,
        precision=shocks.precision,
        pull=shocks.pull,
        background=turn.background,
        own=table.exposure * rate,
        rate=rate,
        dispersion=turn.dispersion.common,
        within=turn.dispersion.own,
        lasting=_lasting(records, turn.dispersion) if city.kept is None else city.kept.lasting,
        level=turn.level.reshape(len(table.zones), -1),  # the shocks belong to this one
        observed=table.observed,
        walks=records.walks,
    )


def _law(records: JointRecords, level: Array, last: _Turn | None) -> tuple[ShockLaw, _Dispersion]:
    """Learn how large and wide shocks are, from the residuals or from the shocks of the last turn.

    `level` are the levels of the groups.
    """
    table, observed = records.table, records.observed
    level = level[records.group]
    if last is not None:
        # A fit takes up a part of the shocks of its own bins: beside it they look too small and too smooth.
        shocks, other_weeks = last.shocks, (table.apart + level, table.apart_error)
        law = refine_law(shocks.law, shocks.space, shocks.sites, *other_weeks, table.metres, table.hours)
        return law, _Dispersion(*refine_dispersion(shocks, observed, table.exposure, last.usual, last.before))
    # Walkers would look like shocks that neighbours share: residuals are taken where there are none.
    expected = np.where(records.alone, records.own(records.log_rate + level), np.nan)
    law = learn_law(observed, expected, table.metres, table.hours)
    own = own_dispersion(observed, expected, law)
    return law, _Dispersion(float(np.average(own, weights=1e-9 + np.nansum(observed, axis=1))), own)


def _kept_law(kept: KeptJoint, table: ZoneTable) -> tuple[ShockLaw, _Dispersion]:
    own = np.array([kept.within.get(zone, kept.dispersion) for zone in table.zones])
    return kept.law, _Dispersion(kept.dispersion, own)


def _lasting(records: JointRecords, dispersion: _Dispersion) -> float:
    # Walkers come while a neighbour is out, for a part of the bin: they would look like riders who come in groups.
    own = np.where(records.alone, records.observed, np.nan)
    table = records.table
    return learn_lasting(table.early, own, table.exposure, records.group, dispersion.common)


def _learn_curve(
    city: _City, shocks: Shocks, dispersion: _Dispersion, riders: Array, start: Walking, *, laplace: bool = True
) -> Walking:
    """Learn how far riders walk, each count by a rate that does not know it."""
    records = city.records
    # At the level of the fits: how it changes with the curve is `absorbed`.
    fitted = records.log_rate - 0.5 * shocks.law.variance
    own = np.nan_to_num(records.own(fitted + shocks.left_out_mean, shocks.left_out_var))
    spread = dispersion.common + shocks.left_out_var
    data = records.walks, records.observed, own, riders
    return learn_walking(*data, dispersion=spread, absorbed=city.absorbed, start=start, laplace=laplace)


def _left_by_shocks(city: _City, turn: _Turn) -> float:
    """Part of the information on walkers that is left when shocks are not known but estimated with them.

    Walkers come for hours, and next to one another, as shocks do: with more walkers expected, shocks come out smaller,
    and the counts fit nearly as well. The curvature of the evidence by the number of walkers is that with the shocks
    estimated again, over that with the shocks held.
    """
    records, table, shocks = city.records, city.records.table, turn.shocks
    observed, seen = np.nan_to_num(records.observed), np.isfinite(records.observed)
    more = 1 + _MORE_WALKERS
    again = estimate_shocks(
        records.observed,
        table.exposure,
        turn.usual,
        more * turn.before,
        shocks.law,
        table.metres,
        dispersion=turn.dispersion.common,
        hours=table.hours,
        start=shocks.sites,
        spread=city.spread,
    )

    def slope(known: Shocks, factor: float) -> float:
        own = np.nan_to_num(records.own(turn.usual + known.left_out_mean, known.left_out_var))
        mean = np.maximum(own + factor * turn.background, 1e-9)
        excess = turn.dispersion.common + known.left_out_var
        return float(np.sum((turn.background * (observed - mean) / (mean * (1 + excess * mean)))[seen]))

    here = slope(shocks, 1.0)
    held = here - slope(shocks, more)
    return float(np.clip((here - slope(again, more)) / held, _LEAST_LEFT, 1.0)) if held > 0 else 1.0


def _left_out(zones: int) -> float:
    more = _MORE_LEFT_OUT * np.log2(zones / 40)
    return float(np.clip(_LEFT_OUT + more, _LEAST_LEFT_OUT, 1.0))


def _riders(city: _City, shocks: Shocks, usual: Array, left_out: float) -> Array:
    """Riders of each walk, with a part of what the target's count says of the source's rate left out."""
    walks = city.records.walks
    at = walks.source, walks.bin
    mean, rest = shocks.elsewhere
    mean = left_out * mean + (1 - left_out) * shocks.mean[at]
    rest = left_out * rest + (1 - left_out) * shocks.var[at]
    return np.asarray(walks.out * np.nan_to_num(np.exp(usual[at] + mean + 0.5 * rest)))


def _measure(joint: JointCity, table: ZoneTable, hidden: BoolArray, seed: int) -> HeldOut | None:
    rng = np.random.default_rng([_HELD_OUT_SEED, seed])
    at = hidden & np.isfinite(table.log_rate) & np.isfinite(table.observed)
    mean, var = (values[at] for values in joint.log_rate(table))
    latent = mean + np.sqrt(var) * rng.standard_normal((_DRAWS, at.sum()))
    # The walkers expected are part of what is counted.
    expected = table.exposure[at] * np.exp(latent) + joint.background[at]
    day = np.nonzero(at)[1] // max(round(24 / table.hours), 1)
    return measure(table.observed[at], expected, table.exposure[at], joint.dispersion, day, rng)
