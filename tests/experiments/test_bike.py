import numpy as np
import pandas as pd
import pytest

from unmet import FileFormatError, InputError
from unmet.experiments import Run, bike
from unmet.experiments.bike_data import NYC_STATIONS, nyc_stations, read_zones, write_zones


def silent(_: str) -> None:
    pass


def own(days=40, **columns):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "zone": "hub",
            "day": pd.date_range("2024-01-01", periods=days).strftime("%Y-%m-%d"),
            "pickups": rng.poisson(50, days),
            "stockout": np.arange(days) % 4 == 0,
            "temperature": rng.normal(10, 5, days),
        }
    ).astype({"stockout": int})
    return table.assign(**columns)


def test_a_users_own_file_is_read_with_its_weather(tmp_path):
    own().sample(frac=1, random_state=1).to_csv(tmp_path / "own.csv", index=False)
    (zone,) = read_zones(tmp_path / "own.csv", silent)
    assert zone.day.is_monotonic_increasing
    assert zone.stockout.sum() == 10
    assert zone.inputs().shape == (40, 2)
    assert zone.inputs()[:, 1].std() == pytest.approx(1)
    assert zone.t.tolist() == list(range(40))


def test_what_is_written_can_be_read_back(tmp_path):
    own().to_csv(tmp_path / "own.csv", index=False)
    zones = read_zones(tmp_path / "own.csv", silent)
    write_zones(zones, tmp_path / "zones.csv")
    (again,) = read_zones(tmp_path / "zones.csv", silent)
    np.testing.assert_array_equal(again.inputs(), zones[0].inputs())
    np.testing.assert_array_equal(again.pickups, zones[0].pickups)
    np.testing.assert_array_equal(again.stockout, zones[0].stockout)


def test_days_without_weather_are_left_out_and_said_to_be(tmp_path):
    table = own()
    table.loc[[3, 5], "temperature"] = np.nan
    table.to_csv(tmp_path / "own.csv", index=False)
    said = []
    (zone,) = read_zones(tmp_path / "own.csv", said.append)
    assert len(zone.day) == 38
    assert said == ["hub: 2 days left out (no weather)"]


@pytest.mark.parametrize(
    ("table", "error", "words"),
    [
        (own().drop(columns="stockout"), FileFormatError, "no column stockout"),
        (own().drop(columns="temperature"), FileFormatError, "no weather"),
        (own(stockout=2), FileFormatError, "0 or 1"),
        (own(pickups=-1), FileFormatError, "zero or more"),
        (own(day="2024-01-01"), FileFormatError, "more than once"),
        (own(stockout=0), InputError, "some with and some without"),
        (own(days=10), InputError, "20 days or more"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path, table, error, words):
    table.to_csv(tmp_path / "own.csv", index=False)
    with pytest.raises(error, match=words):
        read_zones(tmp_path / "own.csv", silent)


def test_a_file_of_nothing_but_a_header_is_refused(tmp_path):
    (tmp_path / "own.csv").write_text("zone,day,pickups,stockout,rain\n")
    with pytest.raises(FileFormatError, match="no row below the header"):
        read_zones(tmp_path / "own.csv")


def test_a_missing_data_file_is_named_with_its_origin(tmp_path, monkeypatch):
    monkeypatch.setenv("UNMET_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"daily_counts_and_stockouts_2017\.csv\.gz is missing.*github\.com.*--data"):
        nyc_stations(silent)


@pytest.mark.data
def test_three_stations_of_2017_have_the_stockouts_that_are_known_of_them(data_dir):
    said = []
    zones = nyc_stations(said.append)
    assert [z.name for z in zones] == [f"station {s}" for s in NYC_STATIONS]
    assert [round(z.stockout.mean(), 2) for z in zones] == pytest.approx([0.35, 0.38, 0.40], abs=0.02)
    assert all(310 <= len(z.day) <= 332 for z in zones)
    assert all(z.day.year.unique().tolist() == [2017] for z in zones)
    assert any("not in service all day" in s for s in said)


def test_days_are_dealt_to_five_folds_that_do_not_depend_on_the_model(tmp_path):
    own().to_csv(tmp_path / "own.csv", index=False)
    (zone,) = read_zones(tmp_path / "own.csv", silent)
    folds = bike.folds_of(zone, 0, 0)
    assert sorted(np.concatenate(folds).tolist()) == list(range(40))
    assert [len(f) for f in folds] == [8] * 5
    assert not np.array_equal(folds[0], bike.folds_of(zone, 1, 0)[0])


def test_labels_are_removed_at_random_and_the_same_ones_for_every_c(tmp_path):
    own().to_csv(tmp_path / "own.csv", index=False)
    (zone,) = read_zones(tmp_path / "own.csv", silent)
    label = zone.stockout.astype(int)
    assert bike.labels_kept(zone, label, 1.0, 0) is label
    half = bike.labels_kept(zone, label, 0.5, 0)
    assert np.isnan(half).sum() == 20
    np.testing.assert_array_equal(half[~np.isnan(half)], label[~np.isnan(half)])
    np.testing.assert_array_equal(half, bike.labels_kept(zone, label, 0.5, 0))
    assert np.isnan(bike.labels_kept(zone, label, 0.0, 0)).all()


@pytest.mark.slow
def test_a_users_own_file_runs_end_to_end(tmp_path, capsys):
    own().to_csv(tmp_path / "own.csv", index=False)
    frame = bike.reproduce(Run(tmp_path / "out", "quick", jobs=1, data=tmp_path / "own.csv"))
    assert set(frame.model) == {"ncgp", "ncgp-a", "cgp", "share"}
    assert set(frame.c) == {0.0, 0.5, 1.0}
    assert set(frame.experiment) == {"bike", "bike (half of the labels)", "bike (no labels)"}
    dropped = frame[(frame.model == "ncgp-a") & (frame.subset == "all") & (frame.metric == "rmse")]
    assert dropped.value.nunique() == 1, "NCGP-A sees no censored day and so no c"
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 3 + 1 + 3 + 3 + 2
    assert {"rmse", "coverage"} <= set(frame[frame.subset == "recovered"].metric)
    written = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"share_against_the_best.csv", "labels_removed.md"} <= written
    assert {"results.csv", "table2.csv", "table2.md", "figure_hub.png", "figure_hub.svg", "README.md"} <= written
    out, err = capsys.readouterr()
    assert "Bike-sharing: hub" in out
    assert "own.csv" in err
    assert "own.csv: hub" in (tmp_path / "out" / "README.md").read_text()
