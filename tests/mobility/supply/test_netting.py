"""Supply netted from trips, against following every level that could have been."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unmet.mobility.supply import netting
from unmet.mobility.supply.netting import Moves, net_supply
from unmet.mobility.supply.states import EMPTY, UNDETERMINED, VEHICLES


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from([-1, 1])), max_size=40),
    st.integers(10, 35),
)
def test_a_state_is_certain_just_where_all_levels_at_the_start_lead_to_it(capacity, moves, hole):
    """Every level from empty to full is followed; the states must be what all of them agree on."""
    moves = sorted(moves, key=lambda m: m[0])
    minute = np.array([m for m, _ in moves], dtype=np.int64)
    change = np.array([c for _, c in moves], dtype=np.int64)
    covered = np.array([[0, hole], [hole + 3, 50]])
    spells = net_supply(np.zeros(len(moves), dtype=np.int64), minute, change, np.array([capacity]), covered)
    found = np.full(50, -1)
    for begin, end, reason in zip(spells.begin, spells.end, spells.reason, strict=True):
        assert begin < end
        found[begin:end] = reason
    expected = np.full(50, -1)
    for begin, end in covered:
        levels = set(range(capacity + 1))
        for now in range(begin, end):
            for _, c in [m for m in moves if m[0] == now]:
                levels = {min(capacity, max(0, level + c)) for level in levels}
            expected[now] = VEHICLES if min(levels) > 0 else EMPTY if max(levels) == 0 else UNDETERMINED
    np.testing.assert_array_equal(found, expected)


def test_zones_in_blocks_have_the_spells_of_all_at_once(monkeypatch):
    """Zones with many moves, few, and without a station; two stations in no zone."""
    rng = np.random.default_rng(0)
    zone = np.array([0, 0, 1, 3, 3, 3, 4, 7, 8])  # zones 0 to 5; 2 and 5 have no station
    station = np.sort(rng.choice(len(zone), 300, p=[0.4, 0.1, 0.05, 0.05, 0.1, 0.05, 0.05, 0.1, 0.1]))
    minute = np.concatenate([np.sort(rng.integers(1, 500, n)) for n in np.bincount(station, minlength=len(zone))])
    moves = Moves(station, minute, rng.choice([-1, 1], 300), np.full(len(zone), 5), np.array([[0, 500]]))
    whole = moves.spells()
    for most in (1, 40, 130, 1000):
        monkeypatch.setattr(netting, "_MOVES_AT_ONCE", most)
        blocks = list(moves.blocks(zone, range(6)))
        assert np.concatenate([zones for zones, _ in blocks]).tolist() == list(range(6))
        assert all(len(zones) == 1 or len(some.station) <= most for zones, some in blocks)
        found = [some.spells() for _, some in blocks]
        inner = zone[whole.owner] < 6
        for name in ("owner", "begin", "end", "reason"):
            parts = np.concatenate([getattr(spells, name) for spells in found])
            np.testing.assert_array_equal(parts, getattr(whole, name)[inner])


def test_a_station_without_a_capacity_is_undetermined():
    spells = net_supply(
        np.zeros(1, dtype=np.int64),
        np.ones(1, dtype=np.int64),
        np.ones(1, dtype=np.int64),
        np.array([0]),
        np.array([[0, 9]]),
    )
    assert (spells.begin.tolist(), spells.end.tolist(), spells.reason.tolist()) == ([0], [9], [UNDETERMINED])
