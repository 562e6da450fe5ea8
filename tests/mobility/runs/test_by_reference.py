"""Runs whose workers read the rows of zones and write finished batches themselves."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
from toy_model import ToyModel, estimate_toy, toy_panel

from unmet import InputError
from unmet._storage.parquet import write_parquet
from unmet.execution import UnfitWorker, serially
from unmet.mobility.backtest import backtest
from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import build_panel
from unmet.mobility.panel.file import open_panel
from unmet.mobility.panel.reference import PanelReference
from unmet.mobility.runs import run_estimates
from unmet.mobility.runs.outputs import TABLES
from unmet.simulate import simulate_city


class ByReference:
    """An executor whose items and functions pass through pickle, as between machines; it counts their bytes."""

    by_reference = True

    def __init__(self):
        self.sizes = []

    def __call__(self, function, items, jobs):
        work = pickle.dumps(function)
        for item in items:
            self.sizes.append(len(pickle.dumps(item)))
            ((_, outcome),) = serially(pickle.loads(work), [pickle.loads(pickle.dumps(item))])
            yield item, outcome


@pytest.fixture(scope="module")
def panel(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("panel") / "panel.parquet"
    write_parquet(toy_panel(), path)
    return path


def tables(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in TABLES}


def run(panel, out, executor, **options):
    return run_estimates(panel, ToyModel(), out, estimate=estimate_toy, executor=executor, chunk=2, **options)


def test_tables_are_the_same_bytes_and_items_are_names(panel, tmp_path):
    executor = ByReference()
    run(panel, tmp_path / "values", serially)
    run(panel, tmp_path / "names", executor)
    assert tables(tmp_path / "names") == tables(tmp_path / "values")
    assert len(executor.sizes) == 3
    assert max(executor.sizes) < 500
    assert not (tmp_path / "names" / ".parts").exists()


def test_rows_with_features_and_future_bins_are_the_same_to_the_last_type(panel):
    features = toy_panel(zones=1)[["start"]].assign(rain=[None, 1.5] * 108, kind="dry")
    future = features[["start"]].iloc[-2:] + features["start"].diff().iloc[-1] * 2
    future = future.assign(start_local=future["start"].dt.tz_localize(None), minutes=60)
    with open_panel(panel) as file:
        file.set_features(features)
        file.set_future(future)
        reference = pickle.loads(pickle.dumps(PanelReference.of(file, features, future)))
        expected = file.rows_of("z1")
    with reference.opened() as other:
        found = other.rows_of("z1")
    assert found.equals(expected)
    assert found.dtypes.equals(expected.dtypes)


def test_a_panel_in_memory_is_sent_by_value(tmp_path):
    executor = ByReference()
    run(toy_panel(), tmp_path / "memory", executor)
    run(toy_panel(), tmp_path / "plain", serially)
    assert tables(tmp_path / "memory") == tables(tmp_path / "plain")
    assert min(executor.sizes) > 10_000


def test_a_panel_out_of_reach_ends_the_run_and_no_zone_is_to_blame(panel, tmp_path):
    own = shutil.copy(panel, tmp_path / "panel.parquet")

    def elsewhere(function, items, jobs):
        for item in items:
            Path(own).unlink(missing_ok=True)  # a machine without the file
            yield from serially(function, [item])

    elsewhere.by_reference = True
    with pytest.raises(InputError, match=r"The worker on \S+ has no .*panel\.parquet\. The panel and the folder"):
        run(own, tmp_path / "out", elsewhere)
    assert not (tmp_path / "out" / "run.json").exists()


def test_an_unfit_worker_ends_the_run_before_any_zone(panel, tmp_path):
    def unfit(function, items, jobs):
        raise AssertionError("nothing may be tried")
        yield

    def check():
        raise UnfitWorker("another NumPy")

    unfit.check = check
    with pytest.raises(UnfitWorker, match="another NumPy"):
        run(panel, tmp_path / "out", unfit)


def test_the_engine_and_its_versions_are_in_the_description_of_the_run(panel, tmp_path):
    engine = run(panel, tmp_path / "out", serially).info["engine"]
    assert engine["name"] == "serially"
    assert set(engine["stamp"]) == {"Python", "unmet", "NumPy", "SciPy", "BLAS"}


def test_backtests_by_reference_are_equal(panel):
    both = [backtest(panel, ["observed", "weekly-mean"], executor=e, draws=20) for e in (serially, ByReference())]
    assert both[0].summary.equals(both[1].summary)
    assert both[0].scores.equals(both[1].scores)


@pytest.mark.slow
def test_a_city_estimated_as_one_is_the_same_bytes_too(tmp_path):
    city = simulate_city(stations=8, days=14, seed=5, fleet_share=0.25)
    build_panel(city.trips, city.status, city.stations, timezone=city.settings.timezone).save(
        tmp_path / "panel.parquet"
    )
    executor = ByReference()
    for name, where in (("values", serially), ("names", executor)):
        result = LatentDemand(draws=20).fit(tmp_path / "panel.parquet", tmp_path / name, jobs=1, executor=where)
        assert result.info["joint"] is not None
    assert tables(tmp_path / "names") == tables(tmp_path / "values")
    assert max(executor.sizes) < 10_000
