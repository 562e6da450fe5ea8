"""The hidden number of vehicles that cannot be rented, against enumeration, simulation and limits."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.linalg import expm

from unmet.mobility.supply import broken, usable, usable_learning
from unmet.mobility.supply.broken import BRIEF, BROKEN, MOST_BROKEN, STATES, Fault, Steps, demand_with
from unmet.mobility.supply.served import find_served
from unmet.mobility.supply.timeline import Timeline
from unmet.mobility.supply.usable import Chunks, log_likelihood, log_likelihoods, smooth
from unmet.mobility.supply.usable_learning import UsableSupply, hidden, learn_fault, learn_usable, served
from unmet.mobility.supply.usable_words import supply_curve, supply_facts, supply_line
from unmet.mobility.supply.usual_rates import CityRates, make_calendar

FAULT = Fault(
    breakage=0.1,
    repair=0.002,
    found=0.001,
    unforeseen=0.0005,
    visit=0.6,
    brief=0.15,
    recovery=0.06,
    fleeting=0.1,
    stray=0.02,
)


def steps_of(rows: list[tuple[int, float, float, int, int, int, int, bool]]) -> Steps:
    """Steps from rows of (station, minutes, expected, listed, pickups, returned, disabled, visited)."""
    kinds = (int, float, float, int, int, int, int, bool)
    return Steps(*(np.array(column, dtype=kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)))


def random_steps(seed: int, stations: int, length: int) -> Steps:
    """Short records in which anything may happen, the listed number following from the events."""
    rng = np.random.default_rng(seed)
    rows = []
    for station in range(stations):
        listed = int(rng.integers(0, 4))
        for _ in range(length):
            taken = int(rng.random() < 0.5 and listed > 0)
            disabled = int(rng.random() < 0.2 and listed - taken > 0)
            back = int(rng.integers(0, 3))
            minutes = float(rng.integers(1, 60))
            rows.append((station, minutes, rng.gamma(1.0), listed, taken, back, disabled, bool(rng.random() < 0.1)))
            listed += back - taken - disabled
    return steps_of(rows)


def event_reference(fault: Fault, state: int, returned: int, disabled: int, visited: bool, most: int) -> np.ndarray:
    """Where a state goes in an event, written out case by case."""
    k, j = int(BROKEN[state]), int(BRIEF[state])
    weight = 1.0 + fault.found / fault.unforeseen if disabled and k >= disabled else 1.0
    outcomes = {(max(k - disabled, 0), j): weight}
    if visited:
        after: dict[tuple[int, int], float] = {}
        for (k, j), w in outcomes.items():
            after[0, j] = after.get((0, j), 0.0) + w * fault.visit
            after[k, j] = after.get((k, j), 0.0) + w * (1 - fault.visit)
        outcomes = after
    for _ in range(returned):
        after = {}
        for (k, j), w in outcomes.items():
            ways = ((min(k + 1, MOST_BROKEN), j, fault.breakage), (k, 1, (1 - fault.breakage) * fault.brief))
            for k2, j2, p in (*ways, (k, j, (1 - fault.breakage) * (1 - fault.brief))):
                after[k2, j2] = after.get((k2, j2), 0.0) + w * p
        outcomes = after
    row = np.zeros(STATES)
    for (k, j), w in outcomes.items():
        k = min(k, most)
        row[2 * k + min(j, most - k)] += w
    return row


def matrices(fault: Fault, steps: Steps) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Drift (by the matrix exponential of its three parts) and event of every step, entry by entry."""
    drifts, events = [], []
    for i in range(len(steps)):
        n = int(steps.listed[i])
        sound = np.maximum(n - BROKEN - BRIEF, 0)
        share = np.ones(STATES) if n >= MOST_BROKEN + 2 else np.maximum(1 - fault.fleeting**sound, fault.stray)
        minutes = steps.minutes[i]
        repair, recover = np.zeros((STATES, STATES)), np.zeros((STATES, STATES))
        for s in range(STATES):
            if BROKEN[s]:
                repair[s, BRIEF[s]] += fault.repair
                repair[s, s] -= fault.repair + fault.found
            if BRIEF[s]:
                recover[s, s - 1] += fault.recovery
                recover[s, s] -= fault.recovery
        taken = np.ones(STATES)
        if n > 0:
            recover -= np.diag(share * steps.expected[i] / minutes)
            taken = share ** steps.pickups[i]
        # A repair and a find within half a step are rare: to first order the repaired are not found.
        half = np.eye(STATES)
        kept = np.exp(-(fault.repair + fault.found) * minutes / 2)
        for s in range(STATES):
            if BROKEN[s]:
                half[s, s] = kept
                half[s, BRIEF[s]] += np.exp(-fault.found * minutes / 2) - kept
        drifts.append(half @ expm(recover * minutes) @ half @ np.diag(taken))
        last = i + 1 == len(steps) or steps.station[i + 1] != steps.station[i]
        most = MOST_BROKEN + 2 if last else int(steps.listed[i + 1])
        rows = [
            event_reference(fault, s, int(steps.returned[i]), int(steps.disabled[i]), bool(steps.visited[i]), most)
            for s in range(STATES)
        ]
        events.append(np.array(rows))
    return drifts, events


def enumerate_paths(fault: Fault, steps: Steps) -> tuple[np.ndarray, np.ndarray, float]:
    """Sum over every path of hidden states of one station: begin and end of each step, and the log-likelihood."""
    drifts, events = matrices(fault, steps)
    start = broken.initial(fault, steps)[0]
    begin, end = np.zeros((len(steps), STATES)), np.zeros((len(steps), STATES))
    total = 0.0
    # A path is the state at the begin and at the end of each step.
    for path in product(range(STATES), repeat=2 * len(steps)):
        weight = start[path[0]]
        for i in range(len(steps)):
            weight *= drifts[i][path[2 * i], path[2 * i + 1]]
            following = slice(None) if i + 1 == len(steps) else path[2 * i + 2]
            weight *= events[i][path[2 * i + 1], following].sum()
            if weight == 0.0:
                break
        if weight:
            for i in range(len(steps)):
                begin[i, path[2 * i]] += weight
                end[i, path[2 * i + 1]] += weight
            total += weight
    return begin / total, end / total, float(np.log(total))


@pytest.mark.parametrize("seed", range(4))
def test_smoothing_sums_over_all_paths(seed):
    steps = random_steps(seed, 1, 3)
    begin, end, total = enumerate_paths(FAULT, steps)
    found = smooth(FAULT, steps)
    assert found.log_likelihood == pytest.approx(total, rel=1e-9)
    np.testing.assert_allclose(found.begin, begin, atol=1e-9)
    np.testing.assert_allclose(found.end, end, atol=1e-9)


def test_chunks_change_nothing(monkeypatch):
    steps = random_steps(7, 5, 60)
    whole = smooth(FAULT, steps)
    monkeypatch.setattr(usable, "_CHUNK", 7)
    monkeypatch.setattr(usable, "_ROUNDS", 100)
    cut = smooth(FAULT, steps)
    assert cut.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-9)
    np.testing.assert_allclose(cut.begin, whole.begin, atol=1e-5)
    np.testing.assert_allclose(cut.end, whole.end, atol=1e-5)


def test_several_parameters_at_once_are_those_one_by_one():
    steps = random_steps(5, 4, 30)
    faults = [FAULT, replace(FAULT, breakage=0.3, fleeting=0.4), replace(FAULT, brief=0.0, stray=0.1)]
    assert log_likelihoods(faults, Chunks(steps)) == pytest.approx([log_likelihood(fault, steps) for fault in faults])


def test_steps_worked_out_together_are_those_one_by_one(monkeypatch):
    steps = random_steps(6, 3, 20)
    faults = [FAULT, replace(FAULT, breakage=0.3, fleeting=0.4)]
    together = broken.Drift(faults, steps)
    monkeypatch.setattr(broken, "_AT_ONCE", 1)
    apart = broken.Drift(faults, steps)
    np.testing.assert_array_equal(apart.factors, together.factors)
    np.testing.assert_array_equal(apart.taken, together.taken)


def test_splitting_repairs_from_the_rest_is_accurate_for_steps_of_two_hours():
    fault = replace(FAULT, repair=1 / 1440, found=1 / 1440)
    steps = steps_of([(0, 120.0, 2.0, 2, 0, 0, 0, False)])
    share = np.maximum(1 - fault.fleeting ** np.maximum(2 - BROKEN - BRIEF, 0), fault.stray)
    rate = np.diag(-share * 2.0 / 120)
    for s in range(STATES):
        if BROKEN[s]:
            rate[s, BRIEF[s]] += fault.repair
            rate[s, s] -= fault.repair + fault.found
        if BRIEF[s]:
            rate[s, s - 1] += fault.recovery
            rate[s, s] -= fault.recovery
    exact = expm(rate * 120)
    drift = broken.Drift([fault], steps)
    found = np.eye(STATES)
    broken.carry_ahead(found, drift.factors.repeat(STATES, axis=1), drift.taken.repeat(STATES, axis=1))
    np.testing.assert_allclose(found.T, exact, atol=0.02)


def test_what_cannot_be_observed_is_not_changed_by_an_empty_station():
    steps = steps_of(
        [(0, 60.0, 1.0, 2, 0, 3, 0, False), (0, 60.0, 50.0, 0, 0, 0, 0, False), (0, 9.0, 0.1, 1, 0, 0, 0, False)]
    )
    found = smooth(FAULT, steps)
    assert found.begin[1, 0] == found.end[1, 0] == 1.0  # nothing listed, nothing broken among it


def simulate(fault: Fault, seed: int, stations: int, days: int, rate: float) -> tuple[Steps, np.ndarray]:
    """Records drawn from the model, and the true share of each step in which a rider is served."""
    rng = np.random.default_rng(seed)
    rows, truth = [], []
    for station in range(stations):
        listed, k, j, clock = 2, 0, 0, 0.0
        while clock < days * 1440:
            length, returned = 0.0, 0
            served_for = 0.0
            while True:  # until something happens that the record shows
                sound = listed - k - j
                hazards = {
                    "pickup": rate * (1 - fault.fleeting**sound) if sound > 0 else 0.0,
                    "return": rate * 1.1 if listed < 8 else 0.0,
                    "repair": fault.repair if k else 0.0,
                    "found": fault.found if k else 0.0,
                    "recovery": fault.recovery if j else 0.0,
                    "cut": 1 / 60,
                }
                wait = rng.exponential(1 / sum(hazards.values()))
                length += wait
                served_for += wait * (1 - fault.fleeting**sound if sound > 0 else 0.0)
                names, rates = zip(*hazards.items(), strict=True)
                event = rng.choice(names, p=np.array(rates) / sum(rates))
                if event == "repair":
                    k = 0
                elif event == "recovery":
                    j = 0
                else:
                    break
            taken, disabled = int(event == "pickup"), k if event == "found" else 0
            before = listed
            if event == "found":
                listed, k = listed - k, 0
            elif event == "pickup":
                listed -= 1
            elif event == "return":
                returned, listed = 1, listed + 1
                if rng.random() < fault.breakage:
                    k += 1
                elif rng.random() < fault.brief and not j:
                    j = 1
            rows.append((station, length, rate * length, before, taken, returned, disabled, False))
            truth.append(served_for / length)
            clock += length
    return steps_of(rows), np.array(truth)


TRUE = Fault(
    breakage=0.02, repair=1 / 1440, found=1 / 2880, unforeseen=1e-6, brief=0.1, recovery=0.05, fleeting=0.1, stray=1e-3
)


@pytest.fixture(scope="module")
def record() -> tuple[Steps, np.ndarray]:
    return simulate(TRUE, 3, stations=12, days=20, rate=0.03)


def test_learning_recovers_the_parameters_of_simulated_records(record):
    steps, _ = record
    learnt = learn_fault(replace(steps, station=np.arange(len(steps)) // 150))  # short sequences, side by side
    assert learnt.breakage == pytest.approx(TRUE.breakage, rel=0.4)
    assert learnt.repair + learnt.found == pytest.approx(TRUE.repair + TRUE.found, rel=0.5)
    assert learnt.fleeting == pytest.approx(TRUE.fleeting, abs=0.05)
    assert log_likelihood(learnt, steps) > log_likelihood(replace(TRUE, unforeseen=learnt.unforeseen), steps) - 3
    nothing = replace(learnt, breakage=0.0, brief=0.0, fleeting=0.0)
    assert log_likelihood(learnt, steps) > log_likelihood(nothing, steps) + 100


def test_rates_that_are_too_high_are_not_taken_for_vehicles_that_cannot_be_rented(record):
    steps, _ = record
    learnt = learn_fault(replace(steps, station=np.arange(len(steps)) // 150, expected=1.15 * steps.expected))
    assert learnt.demand == pytest.approx(1 / 1.15, rel=0.05)
    assert learnt.scarcity == pytest.approx(1.0, abs=0.03)
    assert learnt.breakage == pytest.approx(TRUE.breakage, rel=0.4)
    assert learnt.fleeting == pytest.approx(TRUE.fleeting, abs=0.06)


def test_demand_that_grows_with_each_vehicle_fewer_is_found(record):
    steps, _ = record
    growing = replace(steps, station=np.arange(len(steps)) // 150)
    known = demand_with([Fault(0.0, 1.0, demand=1.0, scarcity=1.06)], steps.listed)[:, 0]
    np.testing.assert_allclose(known[[0]], 1.06 ** max(4 - int(steps.listed[0]), 0))
    # The rates are too low by that factor wherever few are listed.
    learnt = learn_fault(replace(growing, expected=steps.expected / known))
    assert 1.02 < learnt.scarcity < 1.08
    assert learnt.breakage == pytest.approx(TRUE.breakage, rel=0.4)


def test_the_chance_to_be_served_is_calibrated(record):
    steps, truth = record
    chance = served(TRUE, steps, smooth(TRUE, steps))
    few = (steps.listed > 0) & (steps.listed < 4)
    place = np.digitize(chance, np.arange(0.1, 1.0, 0.1))
    for number in range(10):
        here = few & (place == number)
        weight = steps.minutes[here]
        if weight.sum() > 20_000:
            assert np.average(chance[here], weights=weight) == pytest.approx(
                np.average(truth[here], weights=weight), abs=0.05
            )
    assert np.average(chance[few], weights=steps.minutes[few]) == pytest.approx(
        np.average(truth[few], weights=steps.minutes[few]), abs=0.01
    )


def test_the_correction_makes_up_for_what_the_hidden_state_leaves_out(record, monkeypatch):
    """A model that leaves out `fleeting` expects too much; the correction takes it back, also on the other half."""
    steps, _ = record
    steps = replace(steps, station=np.arange(len(steps)) // 150)
    blind = replace(TRUE, fleeting=0.0)
    usable_pickups = steps.expected * served(blind, steps, smooth(blind, steps))
    one = steps.listed == 1
    short = steps.pickups[one].sum() / usable_pickups[one].sum()
    assert short < 0.97
    monkeypatch.setattr(usable_learning, "_CORRECTION_PICKUPS", 1.0)
    correction, after = usable_learning.correct(steps.listed, steps.station % 2, steps.pickups, usable_pickups)
    assert correction[1] == pytest.approx(short, abs=0.002)
    assert after[1:3] == pytest.approx(1.0, abs=0.02)
    assert correction[3:] == pytest.approx(1.0)
    monkeypatch.setattr(usable_learning, "_CORRECTION_PICKUPS", 1e9)
    assert usable_learning.correct(steps.listed, steps.station % 2, steps.pickups, usable_pickups)[0] == pytest.approx(
        1.0, abs=1e-4
    )  # all belief, no records


def one_vehicle_for_days(listed: int) -> Timeline:
    """A station whose vehicles go every two hours for a week; then so many are brought, and nobody takes them."""
    rows, at = [], 0
    while at < 7 * 1440:
        rows += [(0, at, at + 60, 0, False, 0, 1, 0, False), (0, at + 60, at + 120, 1, True, 1, 0, 0, False)]
        at += 120
    rows += [(0, at, at + 60, 0, False, 0, listed, 0, False), (0, at + 60, at + 3000, listed, True, 0, 0, 0, False)]
    kinds = (int, int, int, int, bool, int, int, int, bool)
    return Timeline(
        *(np.array(column, dtype=kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True))
    )


def test_the_list_for_the_workshop_has_stations_whose_record_tells():
    for listed, found in ((1, [1]), (30, [])):  # riders take the sound ones of thirty
        timeline = one_vehicle_for_days(listed)
        calendar = make_calendar(0, int(timeline.end[-1]), "UTC", np.empty((0, 2), dtype=np.int64))
        rates = CityRates(calendar, np.full(168, 1 / 60), np.ones(len(calendar)), np.ones(3))
        one = np.ones(5)
        usable, until = UsableSupply("hidden", rates, TRUE, one, one, one, 0.0), int(timeline.end[-1])
        _, unusable = find_served(usable, timeline, until)
        assert unusable is not None
        assert unusable.listed.tolist() == found
    timeline = one_vehicle_for_days(1)
    for then, found in ((7 * 1440 + 30, []), (until - 600, [1]), (until + 600, [])):  # not yet; then; no record
        _, unusable = find_served(usable, timeline, then)
        assert unusable is not None
        assert unusable.listed.tolist() == found
    _, unusable = find_served(usable, timeline, until)
    assert unusable.probability[0] > 0.9
    assert unusable.number[0] == pytest.approx(1.0, abs=0.1)
    assert unusable.since[0] == 7 * 1440 + 60


def test_the_hidden_state_is_as_uncertain_as_its_probabilities_say(record):
    """The squared error of the chance, in steps that are not averages of many states, is the variance on the mean."""
    steps, truth = record
    found = smooth(TRUE, steps)
    chance, variance = served(TRUE, steps, found), hidden(TRUE, steps, found)
    short = (steps.listed > 0) & (steps.listed < 4) & (steps.minutes < 5)
    assert variance[short].mean() == pytest.approx(((truth - chance)[short] ** 2).mean(), rel=0.15)
    assert (variance[steps.listed == 0] == 0).all()


def test_listings_count_where_pickups_do_not_depend_on_them():
    """Two stations list none, one and two vehicles in turn; each hour has a pickup, whatever is listed."""
    hours = np.arange(20 * 24)
    listed = np.tile(hours % 3, 2).astype(np.int64)
    begin, station = np.tile(60 * hours, 2), np.repeat([0, 1], len(hours))
    one, none = np.ones(len(listed), dtype=np.int64), np.zeros(len(listed), dtype=np.int64)
    timeline = Timeline(station, begin, begin + 60, listed, listed > 0, one, none, none, none > 0)
    calendar = make_calendar(0, 60 * len(hours) - 1, "UTC", np.empty((0, 2), dtype=np.int64))
    learnt = learn_usable(timeline, calendar)
    assert learnt.method == "unrelated"
    assert learnt.is_as_listed
    assert "do not depend" in supply_line(learnt.summary())
    related = replace(timeline, pickups=np.where(listed > 0, one, none))
    assert learn_usable(related, calendar).method != "unrelated"


def test_words_for_looks_without_trips():
    curves = {"curve_listed": {"1": 0.7, "2": 0.9}, "curve_usable": {"1": 0.95, "2": 0.98}}
    learnt = {"method": "between", "parameters": {"breakage": 0.005, "mended": 1 / 2880}, "log_likelihood_gain": 65.0}
    learnt |= curves
    line = supply_line(learnt)
    assert "0.5% of those brought are broken, for 2.0 days on average" in line
    assert line.endswith("0.70 with one vehicle listed and 0.90 with two; 0.95 and 0.98 with the model")
    assert ["Vehicles brought that are broken", "0.50%, for 2.0 days on average"] in supply_facts(learnt)
    assert supply_curve(learnt) == [(1, 0.7, 0.95), (2, 0.9, 0.98)]
    assert "no vehicle seems to be broken" in supply_line(learnt | {"parameters": {}})
