"""What the page unpacks is what was packed, to the step it was rounded to."""

from __future__ import annotations

import base64
import gzip

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unmet.report.packing import PACKED, pack, pack_integers, pack_run
from unmet.report.series import WEEKLY
from unmet.report.source import open_run


def unpack(packed: dict, lengths: list[int]) -> list[np.ndarray]:
    """As the page does it, in plain Python."""
    raw = gzip.decompress(base64.b64decode(packed["data"]))
    half, at, found = len(raw) // 2, 0, []
    for (offset, step), length in zip(packed["scales"], lengths, strict=True):
        values = []
        for k in range(at, at + length):
            number = raw[k] + 256 * raw[half + k]
            values.append(float("nan") if number == 65535 else offset + step * number)
        at += length
        found.append(np.array(values))
    assert 2 * at == len(raw)
    return found


numbers = st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(0, 40).map(float))


@given(st.lists(st.lists(numbers, min_size=1, max_size=30), min_size=1, max_size=4), st.floats(0.001, 10))
def test_what_is_packed_comes_back_within_half_a_step(lists, wanted):
    series = [np.array([np.nan if v is None else v for v in values]) for values in lists]
    packed = pack([(values, wanted) for values in series])
    back = unpack(packed, [len(values) for values in series])
    for values, found, (_, step) in zip(series, back, packed["scales"], strict=True):
        assert np.array_equal(np.isnan(values), np.isnan(found))
        known = np.isfinite(values)
        # Six digits of the offset are kept.
        slack = 0.51 * step + 1e-5 * np.abs(values[known]).max(initial=0.0)
        assert np.abs(values[known] - found[known]).max(initial=0.0) <= slack


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=50))
def test_counts_stay_whole(counts):
    values = np.array(counts, dtype=float)
    (back,) = unpack(pack([(values, 7.5)]), [len(values)])
    assert np.array_equal(back, values)


@given(st.lists(st.integers(1 - 2**30, 2**30 - 1), min_size=1, max_size=50))
def test_moments_come_back_exactly(values):
    raw = gzip.decompress(base64.b64decode(pack_integers(np.array(values))))
    assert np.cumsum(np.frombuffer(raw, dtype="<i4").astype(np.int64)).tolist() == values


def test_a_run_too_long_to_keep_whole_keeps_its_days_and_its_last_bins(plain_run, monkeypatch):
    with open_run(plain_run.folder, plain_run.panel) as source:
        whole = pack_run(source)
        assert whole.fine_from == 0
        monkeypatch.setattr("unmet.report.packing._FINE_ROWS", 13 * 100)
        short = pack_run(source)
        starts = source.bins["start_local"].iloc[short.fine_from :]
        assert 76 <= len(starts) <= 100
        assert starts.iloc[0].hour == 0
        days = source.bins["start_local"].dt.normalize().nunique()
    lengths = [len(starts)] * len(PACKED) + [days] * len(PACKED)
    all_lengths = [len(source.bins)] * len(PACKED) + [days] * len(PACKED)
    for few, many in zip(short.zones, whole.zones, strict=True):
        few_series, many_series = unpack(few["drawn"], lengths), unpack(many["drawn"], all_lengths)
        for a, b in zip(few_series[len(PACKED) :], many_series[len(PACKED) :], strict=True):
            assert np.array_equal(a, b, equal_nan=True)
        observed, at_all = few_series[0], many_series[0]
        assert np.array_equal(observed, at_all[short.fine_from :], equal_nan=True)
        assert few["week"] == many["week"]


def test_packed_hours_of_the_week_are_those_of_the_zone(plain_run):
    with open_run(plain_run.folder, plain_run.panel) as source:
        packed = pack_run(source)
    for zone, week in zip(packed.zones, packed.weeks, strict=True):
        back = unpack(zone["week"], [168] * len(WEEKLY))
        for values, name in zip(back, WEEKLY, strict=True):
            assert np.allclose(values, week[name], rtol=1e-4, atol=1e-3, equal_nan=True), name
