"""The story of a period: sums of draws against plain sums, and what is compared."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unmet import InputError
from unmet.mobility.runs.periods import PeriodDraws, read_draws, sum_by_area, write_draws
from unmet.mobility.runs.totals import ZoneDraws
from unmet.report.source import open_run
from unmet.report.story import QUANTITIES, Weeks, compare, comparisons, read_weeks, week_rows

rng = np.random.default_rng(3)


def some_draws(periods: int, draws: int = 7) -> ZoneDraws:
    return ZoneDraws(rng.poisson(30.0, periods).astype(float), *rng.poisson(3.0, (3, periods, draws)).astype(float))


def test_draws_are_summed_by_area_period_by_period(tmp_path):
    zones = {
        "a": PeriodDraws(np.array([1, 2, 5]), some_draws(3)),
        "b": PeriodDraws(np.array([2, 6]), some_draws(2)),
        "c": PeriodDraws(np.array([2]), some_draws(1)),
        "d": PeriodDraws(np.array([9]), some_draws(1)),
    }
    found = sum_by_area(zones.items(), ["d"], {"a": "north", "b": "north"})
    assert sorted(found) == ["", "north"]
    assert found["north"].periods.tolist() == [1, 2, 5, 6]
    assert found["north"].draws.lost[1] == pytest.approx(zones["a"].draws.lost[1] + zones["b"].draws.lost[0])
    assert found["north"].draws.observed.tolist() == [
        zones["a"].draws.observed[0],
        zones["a"].draws.observed[1] + zones["b"].draws.observed[0],
        zones["a"].draws.observed[2],
        zones["b"].draws.observed[1],
    ]
    write_draws(tmp_path / "draws.npz", found)
    again = read_draws(tmp_path / "draws.npz")
    assert again["north"].draws.walked_in == pytest.approx(found["north"].draws.walked_in, abs=1e-3)


def test_wider_draws_keep_their_mean_and_get_wider():
    lost = rng.poisson(0.05, (40, 200)).astype(float)
    assert ZoneDraws.by_itself(np.zeros(40), lost).widened(0.1, 1.5).lost.mean(axis=1) == pytest.approx(
        lost.mean(axis=1)
    )
    total = ZoneDraws.by_itself(np.zeros(1), lost.sum(axis=0, keepdims=True) + 20)
    wider = total.widened(0.1, 1.5).lost
    assert wider.mean() == pytest.approx(total.lost.mean())
    expected = np.hypot(1.5 * total.lost.std(), 0.1 * total.lost.mean())
    assert wider.std() == pytest.approx(expected, rel=0.1)


def weeks_of(whole: list[bool], lost: list[float]) -> Weeks:
    mondays = pd.date_range("2024-01-01", periods=len(whole), freq="7D")
    draws = np.zeros((4, len(whole), 100))
    draws[3] = np.array(lost)[:, None] + rng.normal(0, 0.5, (len(whole), 100))
    draws[1] = 90.0
    draws[0] = draws[1] + draws[3]
    return Weeks(mondays, np.array(whole), {(None, None, None): draws}, {(None, None, None): 1.0})


@pytest.mark.parametrize(
    ("whole", "keys"),
    [
        ([True], []),
        ([False, True, True, False], ["1w"]),
        ([True] * 6, ["3w", "1w"]),
        ([True] * 9, ["4w", "1w"]),
        ([True] * 30, ["4w", "1w", "13w"]),
        ([True, False, True, True], ["1w"]),
        ([True] * 60, ["4w", "1w", "13w", "year"]),
    ],
)
def test_the_record_decides_what_can_be_compared(whole, keys):
    found = comparisons(weeks_of(whole, [10.0] * len(whole)))
    assert [pair.key for pair in found] == keys
    for pair in found:
        assert all(whole[pair.this] + whole[pair.that])
        assert pair.this.stop - pair.this.start == pair.that.stop - pair.that.start


def test_what_is_asked_for_comes_first_or_is_refused():
    weeks = weeks_of([True] * 60, [10.0] * 60)
    assert comparisons(weeks, "year")[0].that == slice(0, 8)
    assert comparisons(weeks, "7w")[0].this == slice(53, 60)
    with pytest.raises(InputError, match="40w needs 80 whole weeks of records; the record has 60"):
        comparisons(weeks, "40w")
    with pytest.raises(InputError, match="such as 4w, or year; got 'soon'"):
        comparisons(weeks, "soon")


@pytest.mark.parametrize(("last", "verdict"), [(5.0, "better"), (20.0, "worse"), (10.0, "unclear")])
def test_the_answer_follows_the_joint_draws(last, verdict):
    weeks = weeks_of([True, True], [10.0, last])
    found = compare(weeks.draws[None, None, None], comparisons(weeks)[0])
    draws = weeks.draws[None, None, None]
    change = draws[3, 1] / draws[0, 1] - draws[3, 0] / draws[0, 0]
    assert found["verdict"] == verdict
    assert found["change"] == pytest.approx(change.mean())
    assert [found["change_q05"], found["change_q95"]] == pytest.approx(np.quantile(change, [0.05, 0.95]))
    assert found["sentence"].startswith({"better": "Yes:", "worse": "No,", "unclear": "No clear change:"}[verdict])


def test_a_small_change_that_is_sure_is_written_with_the_digits_that_show_it():
    wanted, lost = np.full((2, 4), 10_000.0), np.array([[88.0] * 4, [90.0] * 4])
    draws = np.stack([wanted, wanted - lost, 0 * lost, lost])
    weeks = weeks_of([True, True], [10.0, 10.0])
    sentence = compare(draws, comparisons(weeks)[0])["sentence"]
    assert sentence.startswith("No, it is getting a little worse: 0.90% of")
    assert "0.88% in" in sentence
    assert "a change of +0.02 points" in sentence


def test_weeks_of_a_run_are_the_sums_of_its_bins(plain_run):
    """Means over draws are near the means of bins; observed trips and the parts of each week agree exactly."""
    with open_run(plain_run.folder, plain_run.panel) as source:
        weeks, rows = read_weeks(source), week_rows(read_weeks(source))
    panel = pd.read_parquet(plain_run.panel)
    monday = panel["start_local"].dt.normalize() - pd.to_timedelta(panel["start_local"].dt.day_of_week, unit="D")
    trips = panel.groupby(monday)["observed"].sum()
    served = rows[rows["area"].isna() & (rows["quantity"] == "served")].set_index("week")["mean"]
    assert served.to_dict() == pytest.approx(trips.to_dict())
    assert weeks.whole.tolist() == [True, True, False]
    for area in (None, *weeks.areas):
        everything = weeks.draws[area, None, None]
        for kinds in (
            [("weekdays", None), ("weekends", None)],
            [(None, p) for p in ("night", "morning", "midday", "evening", "late")],
        ):
            assert sum(weeks.draws[(area, *kind)] for kind in kinds) == pytest.approx(everything)
        wanted, served_here, on, lost = everything
        assert wanted == pytest.approx(served_here + on + lost)
    assert sum(weeks.draws[area, None, None] for area in weeks.areas) == pytest.approx(weeks.draws[None, None, None])
    assert QUANTITIES == ("wanted", "served", "walked_on", "lost")
