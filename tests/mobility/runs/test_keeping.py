"""Runs with a few days more of records: only the last bins are estimated, and the result is that of a run in full."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unmet.estimators import CensoredGP
from unmet.estimators.kept import KeptGP
from unmet.execution import serially
from unmet.kernels import Linear, Periodic, SquaredExponential
from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import write_panel
from unmet.mobility.runs.keeping import KEPT, NotKept, check_still_fits, read_kept
from unmet.mobility.runs.outputs import write_info
from unmet.mobility.runs.periods import read_draws
from unmet.mobility.runs.run import RunResult
from unmet.simulate import simulate_city

ZONE = "America/New_York"
DAYS = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Panels of a city, and of the same city with two days less."""
    folder = tmp_path_factory.mktemp("kept")
    city = simulate_city(9, DAYS, seed=3, start="2024-04-01", timezone=ZONE)
    city.weather.to_csv(folder / "weather.csv", index=False)
    end = pd.Timestamp("2024-04-01") + pd.Timedelta(days=DAYS - 2)
    seconds = end.tz_localize(ZONE).timestamp()
    given = {"trips": city.trips, "status": city.status, "stations": city.stations}
    write_panel(folder / "full.parquet", timezone=ZONE, **given)
    given |= {
        "trips": city.trips[city.trips["started_at"] < end],
        "status": city.status[city.status["last_reported"] < seconds],
    }
    write_panel(folder / "less.parquet", timezone=ZONE, **given)
    return folder


def estimate(folder: Path, panel: str, out: str, **more) -> tuple[RunResult, list[str]]:
    told: list[str] = []
    demand = LatentDemand(draws=100, weather=folder / "weather.csv", timezone=ZONE)
    result = demand.fit(
        folder / panel, folder / out, executor=serially, progress=lambda done, zones, note: told.append(note), **more
    )
    return result, told


@pytest.fixture(scope="module")
def base(folder) -> Path:
    return estimate(folder, "less.parquet", "base")[0].out


@pytest.fixture(scope="module")
def continued(folder, base) -> tuple[RunResult, list[str]]:
    return estimate(folder, "full.parquet", "continued", base=base)


def copied(folder: Path, base: Path, name: str, **changes) -> Path:
    """A copy of the earlier run, with other contents of what it kept."""
    target = shutil.copytree(base, folder / name)
    if changes:
        with np.load(target / KEPT) as file:
            arrays = {key: file[key] for key in file.files}
        header = json.loads(str(arrays["header"])) | changes
        with (target / KEPT).open("wb") as stream:
            np.savez(stream, **{**arrays, "header": np.array(json.dumps(header))})
    return target


@pytest.mark.slow
def test_the_result_is_that_of_a_run_in_full(folder, base, continued):
    result, told = continued
    full, _ = estimate(folder, "full.parquet", "scratch")
    assert any("Only bins from" in note for note in told)
    assert not any("Fitting all zones" in note for note in told)
    rows, other = (r.demand().set_index(["zone", "start"]) for r in (result, full))
    assert rows.index.equals(other.index)
    assert rows["observed"].equals(other["observed"])
    # The stated tolerance: lost trips of the system within 1 %, those of the new days within 5 %; rates within a
    # third of their standard deviation.
    for name in ("lost", "demand"):
        assert result.info["totals"][name]["mean"] == pytest.approx(full.info["totals"][name]["mean"], rel=0.01)
        assert result.info["totals"][name]["sd"] == pytest.approx(full.info["totals"][name]["sd"], rel=0.25)
    new = rows.index.get_level_values("start") >= rows.index.get_level_values("start").max() - pd.Timedelta(hours=47)
    assert rows.loc[new, "lost_mean"].sum() == pytest.approx(other.loc[new, "lost_mean"].sum(), rel=0.05)
    off = (rows["rate_mean"] - other["rate_mean"])[new] / other["rate_sd"][new]
    assert float(np.sqrt(np.mean(off**2))) < 0.35
    assert float(np.median(rows["rate_sd"][new] / other["rate_sd"][new])) == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
def test_settled_bins_are_taken_over_and_sums_agree(base, continued):
    result, _ = continued
    settled = read_kept(base, json.loads((base / "run.json").read_text())["kept"]).settled
    rows, earlier = result.demand(), pd.read_parquet(base / "demand.parquet")
    both = [frame[frame["start"] < settled].reset_index(drop=True) for frame in (rows, earlier)]
    pd.testing.assert_frame_equal(*both, check_dtype=False)
    assert not rows.duplicated(["zone", "start"]).any()
    lost = result.totals.query("level == 'system' and quantity == 'lost'")["mean"].item()
    assert rows["lost_mean"].sum() == pytest.approx(lost, rel=0.02)  # means of draws
    observed = result.totals.query("level == 'system' and quantity == 'observed'")["mean"].item()
    assert rows["observed"].sum() == observed
    periods = read_draws(result.out / "draws.npz")[""]
    assert periods.draws.observed.sum() == observed
    assert periods.draws.lost.sum(axis=0).mean() == pytest.approx(lost)
    assert (result.out / KEPT).read_bytes() == (base / KEPT).read_bytes()  # the next run starts from the same


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"zones": ["elsewhere"]}, "the zones changed"),
        ({"end": "2024-01-01T00:00:00+00:00"}, "its records end on 2024-01-01"),
        ({"inputs": {"unmet": "0.0.0"}}, "the unmet changed"),
        ({"features": "another"}, "weather or holidays before"),
        ({"areas": {"SIM001": "north"}}, "the areas changed"),
        ({"places": {}}, "the places of zones changed"),
    ],
)
def test_the_model_is_learnt_anew_when_it_must_be(folder, base, monkeypatch, changes, why):
    name = why.replace(" ", "-")
    other = copied(folder, base, f"base-{name}", **changes)
    info = json.loads((other / "run.json").read_text())
    monkeypatch.setattr("unmet.mobility.runs.run.read_info", lambda _: {**info, "kept": _hash(other / KEPT)})
    monkeypatch.setattr("unmet.mobility.runs.run._prepare", _stop)
    told: list[str] = []
    demand = LatentDemand(draws=100, weather=folder / "weather.csv", timezone=ZONE)
    more = {"executor": serially, "progress": lambda done, zones, note: told.append(note), "base": other}
    with pytest.raises(Stopped):
        demand.fit(folder / "full.parquet", folder / f"out-{name}", **more)
    assert any(why in note for note in told)


def other_pickups(rows: pd.DataFrame) -> pd.Series:
    return rows["observed"] + (rows.index % 500 == 0)


def one_crowded_bin(rows: pd.DataFrame) -> pd.Series:
    """One bin in 10,000, with a tenth of all pickups."""
    return rows["observed"] + (rows.index == 100) * rows["observed"].sum() // 10


def one_zone_busier(rows: pd.DataFrame) -> pd.Series:
    """Fewer than one pickup in a thousand, all at the zone with the fewest."""
    quiet = rows.groupby("zone")["observed"].sum().idxmin()
    first = rows.index[rows["zone"] == quiet][:3]
    return rows["observed"] + rows.index.isin(first) * max(1, rows["observed"].sum() // 4000)


def one_late_trip(rows: pd.DataFrame) -> pd.Series:
    return rows["observed"] + (rows.index == 100)


def other_labels(rows: pd.DataFrame) -> pd.Series:
    """Labels of another rule, one bin in 100: exposure is as it was."""
    return rows["censored"] ^ (rows.index % 100 == 0)


def few_other_labels(rows: pd.DataFrame) -> pd.Series:
    return rows["censored"] ^ (rows.index % 2000 == 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "change", "why"),
    [
        ("observed", other_pickups, "bins, exposure by 0.0% on average"),
        ("observed", one_crowded_bin, "in 1 of"),
        ("observed", one_zone_busier, "much of it in one zone"),
        ("observed", one_late_trip, "changed by 1, too few"),
        ("censored", other_labels, "labels (censored) before"),
        ("censored", few_other_labels, "Only bins from"),
    ],
)
def test_changed_records_of_settled_bins_have_the_model_learnt_anew(folder, base, monkeypatch, column, change, why):
    table = pq.read_table(folder / "full.parquet")  # with its metadata, which has the places of zones
    at = table.schema.get_field_index(column)
    changed = pa.array(change(table.to_pandas()), type=table.schema.field(at).type)
    pq.write_table(table.set_column(at, table.schema.field(at), changed), folder / "changed.parquet")
    monkeypatch.setattr("unmet.mobility.runs.run._prepare", _stop)
    told: list[str] = []
    demand = LatentDemand(draws=100, weather=folder / "weather.csv", timezone=ZONE)
    more = {"executor": serially, "progress": lambda done, zones, note: told.append(note), "base": base}
    with pytest.raises(Stopped):
        demand.fit(folder / "changed.parquet", folder / f"out-{change.__name__}", **more)
    assert any(why in note for note in told)


@pytest.mark.slow
def test_rates_of_the_system_are_those_of_the_same_zones_before_and_after_the_settled_moment(folder, base, monkeypatch):
    """Rates of settled bins were those of all zones but one, later rates those of all zones."""
    other = copied(folder, base, "base-left-out")
    info = json.loads((other / "run.json").read_text())
    write_info(other / "run.json", {**info, "left_out": [{"zone": "SIM001", "why": "its records"}]})
    monkeypatch.setattr("unmet.mobility.runs.attempt.Attempt.learn_city", _stop)
    told: list[str] = []
    demand = LatentDemand(draws=100, weather=folder / "weather.csv", timezone=ZONE)
    more = {"executor": serially, "progress": lambda done, zones, note: told.append(note), "base": other}
    with pytest.raises(Stopped):
        demand.fit(folder / "full.parquet", folder / "out-left-out", **more)
    assert any("other zones are left out" in note for note in told)


class Stopped(Exception):
    """The run would begin."""


def _stop(*_: object) -> None:
    raise Stopped


def _hash(path: Path) -> str:
    from unmet._storage.hashes import file_hash

    return file_hash(path)


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (1.2, True), (1.4, False), (0.7, False)])
def test_new_days_far_from_what_is_expected_have_the_model_learnt_anew(factor, fits):
    start = pd.date_range("2024-05-01", periods=72, freq="h", tz="UTC")
    kept = SimpleNamespace(end=start[47])
    expected = np.full((3, 72), 5.0)
    observed = np.where(np.arange(72) > 47, factor, 3.0) * expected  # earlier bins do not matter
    observed[0, 50:60] = np.nan
    if fits:
        check_still_fits(kept, start, observed, expected)
    else:
        with pytest.raises(NotKept, match="the kept model expects"):
            check_still_fits(kept, start, observed, expected)


def test_what_is_kept_of_a_model_gives_what_the_model_gives():
    rng = np.random.default_rng(0)
    t = np.linspace(0, 60, 1200)
    X = pd.DataFrame({"t": t, "week": t % 7, "rain": rng.uniform(size=1200)})
    y = rng.poisson(np.exp(1 + np.sin(2 * np.pi * t) + 0.3 * X["rain"]))
    kernel = (
        SquaredExponential(0.1, 20.0, columns="t")
        + Periodic(1.0, 1.0, 0.6, columns="week")
        + Linear(1.0, columns="rain")
    )
    gp = CensoredGP(kernel, likelihood="negative-binomial", inference="lowrank", optimizer=None).fit(X, y)
    kept = KeptGP.from_parts(*KeptGP.of(gp).to_parts())
    later = X.assign(t=X["t"] + 30).iloc[::40]  # half of it after the end of the record
    for at in (X.iloc[::40], later):
        quantiles = gp.predict_quantiles(at, [0.1, 0.5, 0.9], kind="latent")
        np.testing.assert_allclose(kept.predict_quantiles(at, [0.1, 0.5, 0.9]), quantiles, rtol=1e-10)
        np.testing.assert_allclose(kept.sample(at, 7, random_state=3), gp.sample(at, 7, random_state=3), rtol=1e-8)
    assert kept.dispersion_ == gp.dispersion_


def test_a_dense_model_and_one_of_values_are_not_kept():
    X = pd.DataFrame({"t": np.arange(30.0)})
    kernel = SquaredExponential(1.0, 5.0, columns="t")
    counts = CensoredGP(kernel, likelihood="poisson", inference="dense", optimizer=None).fit(X, np.arange(30) % 4)
    assert KeptGP.of(counts) is None


@pytest.mark.parametrize("content", [b"", b"PK nonsense", None])
def test_a_damaged_file_is_as_none(tmp_path, content):
    if content is not None:
        (tmp_path / KEPT).write_bytes(content)
        assert read_kept(tmp_path, _hash(tmp_path / KEPT)) is None
    assert read_kept(tmp_path, "0" * 64) is None
    assert read_kept(tmp_path, None) is None
