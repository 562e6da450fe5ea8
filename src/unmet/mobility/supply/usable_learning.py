"""Usable supply of a system, learnt from its own records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from unmet.mobility.supply.broken import Fault, Steps, demand_with, served_share
from unmet.mobility.supply.timeline import AMPLE, CutSteps, Timeline, to_steps
from unmet.mobility.supply.usable import Chunks, Smoothed, log_likelihood, log_likelihoods, smooth
from unmet.mobility.supply.usual_rates import (
    HOURS_OF_WEEK,
    Calendar,
    CityRates,
    StationRates,
    fit_city,
    tally_hours,
)

__all__ = [
    "CORRECTED",
    "NUMBERS",
    "UsableSupply",
    "correct",
    "hidden",
    "lean_to_one",
    "learn_fault",
    "learn_usable",
    "served",
    "with_expected",
]

Floats = NDArray[np.float64]
NUMBERS = np.arange(1, AMPLE)

FEWEST_FOR_CURVE, FEWEST_FOR_MODEL = 30.0, 300.0
"""Pickups expected with one or two vehicles listed from which on an average curve, and the hidden state, are learnt."""

CORRECTED = 2
"""Largest listed number with a correction."""

UNRELATED = 0.5
"""Pickups while nothing is listed, over those expected otherwise, from which on trips and status are unrelated.

It is below .02 in simulated cities and .05 to .2 in real ones, where the feed lags behind."""

_LEAST_GAIN = 10.0
"""Gain of log-likelihood from which on some vehicles are believed to be listed that nobody can rent.

Eight parameters gain a few by chance: −7 to 6 in simulated cities without such vehicles, 70 and more with them."""

_CURVE_PICKUPS = 20.0
"""Expected pickups that weigh as much as the belief that listed vehicles can be rented."""

_CORRECTION_PICKUPS = 400.0
"""Expected pickups at a listed number that weigh as much as the belief that the hidden state explains all: as much as
a prior standard deviation of 5 % for the correction."""

_FORTNIGHT = 14 * 1440
_DIFFERENCE = 1e-3
_LEARNT_FROM, _CORRECTED_FROM = 60_000, 150_000  # steps
_FREE = ("breakage", "repair", "found", "brief", "recovery", "fleeting", "visit", "demand", "scarcity")
# Medians of the priors, and their standard deviations as logits or logarithms: what a bike share may be like.
_CENTRE = np.array(
    [logit(0.005), np.log(5e-4), np.log(3e-4), logit(0.03), np.log(0.05), logit(0.05), logit(0.7), 0.0, np.log(1.02)]
)
_SPREAD = np.array([2.0, 1.5, 1.5, 2.0, 1.0, 1.5, 1.5, 0.1, 0.02])
_IS_RATE = np.array([False, True, True, False, True, False, False, True, True])
# What leaves a trace of minutes is neither every vehicle's lot nor over within a few of them: records that are a minute
# out of step with each other look like that.
_BOUNDS = [
    (logit(1e-5), logit(0.2)),
    (np.log(1 / 43_200), np.log(1 / 120)),
    (np.log(1 / 43_200), np.log(1 / 120)),
    (logit(1e-5), logit(0.3)),
    (np.log(1 / 240), np.log(1 / 5)),
    (logit(1e-4), logit(0.6)),
    (logit(0.05), logit(0.99)),
    (np.log(0.7), np.log(1.3)),
    (np.log(0.9), np.log(1.1)),
]


@dataclass(frozen=True)
class UsableSupply:
    """The worth of listed vehicles, by a model of a system's own records.

    Attributes
    ----------
    method : str
        ``hidden`` (the hidden state of `unmet.mobility.supply.broken`), ``curve`` (an average by number listed),
        ``listed`` (every listed vehicle can be rented: too few records to learn from) or ``unrelated`` (likewise:
        pickups are as frequent while nothing is listed).
    rates : CityRates
        What stations have in common in the pickups to expect.
    fault : Fault, optional
        Parameters of the hidden state; without faults if their gain is small.
    worth : array, shape (AMPLE,)
        Pickups over those expected, by number listed; 0 for none. Where records are few it leans towards 1.
    correction : array, shape (AMPLE,)
        Factor of the hidden state's chance to be served, by number listed: short-lived causes that it leaves out.
    explained : array, shape (AMPLE,)
        Pickups over those expected given the model, by number listed. The correction is learnt on one half of the
        records and judged on the other.
    gain : float
        Log-likelihood of the sample above that of a model in which every listed vehicle can be rented.
    """

    method: str
    rates: CityRates
    fault: Fault | None
    worth: Floats
    correction: Floats
    explained: Floats
    gain: float

    @property
    def is_as_listed(self) -> bool:
        """Whether every listed vehicle is taken to be rentable."""
        return self.method in ("listed", "unrelated")

    def summary(self) -> dict[str, Any]:
        """Return what was learnt, for the summary of a panel."""
        parameters = {} if self.fault is None else {n: float(getattr(self.fault, n)) for n in Fault.__annotations__}
        return {
            "method": self.method,
            "parameters": parameters,
            "correction": {str(n): round(float(self.correction[n]), 4) for n in NUMBERS},
            "curve_listed": {str(n): round(float(self.worth[n]), 4) for n in NUMBERS},
            "curve_usable": {str(n): round(float(self.explained[n]), 4) for n in NUMBERS},
            "log_likelihood_gain": round(self.gain, 1),
        }


def fortnights(timeline: Timeline, rates: StationRates) -> Steps:
    """Cut a timeline into the steps of fortnights, each as if of a station of its own."""
    cut = to_steps(timeline)
    steps = with_expected(cut, rates)
    return replace(steps, station=steps.station * 1000 + cut.begin // _FORTNIGHT % 1000)


def _thin(steps: Steps, most: int) -> Steps:
    """Keep about `most` of the steps: those of some stations, evenly spread."""
    edges = np.append(steps.first, len(steps))
    share = min(1.0, most / max(len(steps), 1))
    chosen = np.diff(np.floor(np.arange(len(edges)) * share)) > 0
    return steps.select(np.repeat(chosen, np.diff(edges)))


def with_expected(cut: CutSteps, rates: StationRates) -> Steps:
    """Fill in the pickups expected in each step where they matter."""
    expected = rates.expected(cut.steps.station, cut.begin, cut.end)
    return replace(cut.steps, expected=np.where(cut.steps.listed < AMPLE, expected, 0.0))


def learn_usable(
    timeline: Timeline,
    calendar: Calendar,
    *,
    enough: bool = True,
    trips: bool = True,
    kept: Mapping[str, Any] | None = None,
) -> UsableSupply:
    """Learn what listed vehicles are worth; or free docks, in a timeline with the two exchanged.

    Parameters
    ----------
    timeline : Timeline
        Of all stations, or some of them.
    calendar : Calendar
        Hours of the period.
    enough : bool
        Whether the records show single pickups. If not, every listed vehicle is taken to be rentable.
    trips : bool
        Whether pickups and returns are known from trips. If not, causes of minutes are left to `fleeting`: a pickup
        soon after a return cancels it between two looks at the feed, so that vehicles seem out just after one.
    kept : mapping, optional
        Fields of `UsableSupply` that were learnt before; only the rates are then found.
    """
    one = np.ones(AMPLE)
    if len(timeline) == 0:
        city = CityRates(calendar, np.ones(HOURS_OF_WEEK), np.ones(len(calendar)), np.ones(3))
        return UsableSupply("listed", city, None, one, one, one, 0.0)
    tally = tally_hours(timeline, calendar)
    rates = fit_city(tally, calendar)
    if kept is not None:
        return UsableSupply(rates=rates, **kept)
    steps = _thin(fortnights(timeline, rates.stations(tally)), _CORRECTED_FROM)
    pickups, expected = (_by_number(steps.listed, of) for of in (steps.pickups, steps.expected))
    worth, known = _average(pickups, expected)
    if not enough or known < FEWEST_FOR_CURVE:
        return UsableSupply("listed", rates, None, worth, one, worth, 0.0)
    if pickups[0] > UNRELATED * expected[0] > UNRELATED * FEWEST_FOR_CURVE:
        return UsableSupply("unrelated", rates, None, worth, one, worth, 0.0)
    if known < FEWEST_FOR_MODEL:
        return UsableSupply("curve", rates, None, worth, one, lean_to_one(pickups, expected * worth), 0.0)
    fault = learn_fault(_thin(steps, _LEARNT_FROM), brief=trips)
    found = smooth(fault, steps)
    nothing = _without_faults(fault, steps)
    gain = found.log_likelihood - log_likelihood(nothing, steps)
    is_sure = gain >= _LEAST_GAIN
    if not is_sure:  # the state still tells what trips know before the feed does
        fault, found = nothing, smooth(nothing, steps)
    half = np.cumsum(np.append(True, steps.station[1:] != steps.station[:-1])) % 2  # every other fortnight
    wanted = steps.expected * demand_with([fault], steps.listed)[:, 0]
    correction, after = correct(steps.listed, half, steps.pickups, wanted * served(fault, steps, found))
    before = pickups / np.maximum(_by_number(steps.listed, wanted), 1e-9)
    before[0] = 0.0
    return UsableSupply("hidden", rates, fault, before, correction if is_sure else one, after, gain)


def _without_faults(fault: Fault, steps: Steps) -> Fault:
    """Return the likelier of two models in which every listed vehicle can be rented: with and without scarcity."""
    nothing = replace(fault, breakage=0.0, brief=0.0, fleeting=0.0, found=0.0)
    return max((nothing, replace(nothing, scarcity=1.0)), key=lambda model: log_likelihood(model, steps))


def _average(pickups: Floats, expected: Floats) -> tuple[Floats, float]:
    """Pickups over those expected by number listed, leaning towards 1; and those expected with one or two listed."""
    return np.minimum(lean_to_one(pickups, expected), 1.0), float(expected[1:3].sum())


def lean_to_one(pickups: Floats, expected: Floats) -> Floats:
    """Pickups over those expected by number listed, leaning towards 1 where few are expected; 0 for none listed."""
    worth: Floats = (pickups + _CURVE_PICKUPS) / (expected + _CURVE_PICKUPS)
    worth[0] = 0.0
    return worth


def served(fault: Fault, steps: Steps, found: Smoothed, correction: Floats | None = None) -> Floats:
    """Chance that a rider can be served in each step, given the whole record."""
    number = np.minimum(steps.listed, AMPLE)
    mean: Floats = 0.5 * ((found.begin + found.end) * served_share(fault, number)).sum(axis=1)
    if correction is not None:
        mean = np.minimum(mean * np.append(correction, 1.0)[number], 1.0)
    mean[steps.listed >= AMPLE] = 1.0
    return mean


def hidden(fault: Fault, steps: Steps, found: Smoothed) -> Floats:
    """Variance of the chance to be served in each step that is due to the hidden state."""
    share = served_share(fault, np.minimum(steps.listed, AMPLE))
    share[steps.listed >= AMPLE] = 1.0
    weight = 0.5 * (found.begin + found.end)
    mean = (weight * share).sum(axis=1)
    variance: Floats = np.maximum((weight * share**2).sum(axis=1) - mean**2, 0.0)
    return variance


def correct(listed: NDArray[Any], half: NDArray[Any], pickups: NDArray[Any], usable: Floats) -> tuple[Floats, Floats]:
    """Find the correction by number listed, and pickups over those expected with the correction of the other half.

    Parameters
    ----------
    listed, pickups : array
        Number listed in some steps, and pickups.
    half : array
        0 or 1, the half to which each step belongs.
    usable : array
        Pickups expected by the model.
    """
    seen, expected = (
        np.array([_by_number(listed, np.where(half == h, values, 0.0)) for h in range(2)])
        for values in (pickups, usable)
    )

    def factor(taken: Floats, of: Floats) -> Floats:
        result: Floats = (taken + _CORRECTION_PICKUPS) / (of + _CORRECTION_PICKUPS)
        # With three or more listed, what is left is an error of the rates: a vehicle is as good as always to be had.
        result[..., [0, *range(CORRECTED + 1, AMPLE)]] = 1.0
        return result

    judged = (expected * factor(seen, expected)[::-1]).sum(axis=0)
    after = seen.sum(axis=0) / np.maximum(judged, 1e-9)
    after[0] = 0.0
    return factor(seen.sum(axis=0), expected.sum(axis=0)), after


def _by_number(listed: NDArray[Any], values: NDArray[Any]) -> Floats:
    """Sum values over steps by number listed, up to `AMPLE - 1`."""
    few = listed < AMPLE
    total: Floats = np.bincount(listed[few], weights=values[few], minlength=AMPLE).astype(np.float64)
    return total


def learn_fault(steps: Steps, brief: bool = True) -> Fault:
    """Find the parameters of the hidden state at the maximum of likelihood times prior; without `brief`, that is 0.

    Two parameters are set beforehand: `stray` is what is seen while no vehicle is listed, and half of the vehicles that
    turned disabled are taken to do so unforeseen.
    """
    empty = steps.listed == 0
    stray = float((steps.pickups[empty].sum() + 1) / (steps.expected[empty].sum() + 50))
    unforeseen = float((np.count_nonzero(steps.disabled) + 1) / (steps.minutes.sum() + 1) / 2)

    chunks = Chunks(steps)
    used = np.array([brief or name != "brief" for name in _FREE])

    def fault(units: Floats) -> Fault:
        free = _CENTRE + _SPREAD * units
        values = (np.where(_IS_RATE, np.exp(free), expit(free)) * used).tolist()
        return Fault(**dict(zip(_FREE, values, strict=True)), stray=stray, unforeseen=unforeseen)

    def objective(units: Floats) -> tuple[float, Floats]:
        """Return minus the log posterior and its gradient, by forward differences that are worked out side by side.

        Parameters are in standard deviations of their priors, in which the posterior is about as wide everywhere.
        """
        near = np.vstack([units, units + _DIFFERENCE * np.eye(len(units))])
        prior = 0.5 * (near**2).sum(axis=1)
        value = prior - log_likelihoods([fault(point) for point in near], chunks)
        return float(value[0]), (value[1:] - value[0]) / _DIFFERENCE

    bounds = (np.array(_BOUNDS) - _CENTRE[:, None]) / _SPREAD[:, None]
    start = np.zeros(len(_FREE))
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-5, "maxiter": 20}
    )
    return fault(found.x)
