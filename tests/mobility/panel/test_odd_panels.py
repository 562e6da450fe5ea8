"""Panels of other software: what contradicts itself is refused, with what was expected."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from unmet import InputError, UnmetError
from unmet.execution import serially
from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel.file import open_panel
from unmet.mobility.panel.reference import PanelReference
from unmet.mobility.runs import RunResult


def panel(*zones: str) -> pd.DataFrame:
    """Four weeks of hours with two pickups each; every tenth hour is half out of stock."""
    start = pd.date_range("2024-01-01", periods=672, freq="h", tz="UTC")
    rows = pd.DataFrame({"start": start, "start_local": start.tz_localize(None), "minutes": 60, "observed": 2.0})
    rows["stockout_minutes"] = np.where(np.arange(672) % 10 == 0, 30, 0)
    rows["available_minutes"] = 60 - rows["stockout_minutes"]
    rows["closed_minutes"] = rows["unknown_minutes"] = 0
    rows["exposure"], rows["censored"] = rows["available_minutes"] / 60, rows["stockout_minutes"] > 0
    return pd.concat([rows.assign(zone=zone) for zone in zones], ignore_index=True)


def fit(frame: pd.DataFrame | Path, **options: object) -> RunResult:
    return LatentDemand("weekly-mean", draws=20, **options).fit(frame, executor=serially)  # type: ignore[arg-type]


def reason(frame: pd.DataFrame) -> str:
    return fit(frame).failures["a"]


def test_rows_may_run_backwards_in_memory() -> None:
    expected = fit(panel("a")).zones["lost_mean"]
    pd.testing.assert_series_equal(fit(panel("a").iloc[::-1]).zones["lost_mean"], expected)


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_times_of_any_unit_are_moments(tmp_path: Path, unit: str) -> None:
    expected = fit(panel("a"), horizon="1d").demand()
    rows = panel("a").assign(start=lambda p: p["start"].dt.as_unit(unit))
    rows.to_parquet(tmp_path / "panel.parquet")
    found = fit(tmp_path / "panel.parquet", horizon="1d").demand()
    pd.testing.assert_frame_equal(found, expected)
    by_reference = PanelReference(
        tmp_path / "panel.parquet", os.stat(tmp_path / "panel.parquet").st_size, {}, None, None
    )
    with by_reference.opened() as file:
        pd.testing.assert_series_equal(file.rows_of("a")["start"], panel("a")["start"].dt.as_unit("us"))


@pytest.mark.parametrize("minutes", [61, 1440])
def test_bins_that_overlap_are_refused(minutes: int) -> None:
    with pytest.raises(
        InputError, match=rf"671 bins overlap.* 2024-01-01 00:00:00.* lasts {minutes} minutes.* starts 60"
    ):
        fit(panel("a").assign(minutes=minutes))


def test_every_zone_has_every_bin() -> None:
    rows = panel("a", "b").drop(index=[5, 6])
    with pytest.raises(InputError, match=r"zone 'a' has 670 of the 672 bins.*row for each bin in every zone"):
        fit(rows)


def test_rows_may_be_of_any_frame() -> None:
    arrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    rows, expected = panel("a"), fit(panel("a")).zones["lost_mean"]
    frames = (arrow.table(rows), polars.DataFrame(rows), polars.DataFrame(rows).lazy(), rows.assign(collect="x"))
    for frame in frames:
        pd.testing.assert_series_equal(fit(frame).zones["lost_mean"], expected)


@pytest.mark.parametrize("name", ["observed", "Observed"])
def test_a_column_that_occurs_twice_is_refused(name: str, tmp_path) -> None:
    """The second one would be taken for weather, and demand would explain itself."""
    rows = panel("a")
    twice = pd.concat([rows, rows[["observed"]].rename(columns={"observed": name})], axis=1)
    with pytest.raises(InputError, match=r"panel: column 'observed' occurs 2 times.*Rename or leave out"):
        fit(twice)


def test_a_column_of_a_file_that_occurs_twice_is_refused(tmp_path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.Table.from_pandas(panel("a"), preserve_index=False)
    parquet.write_table(table.append_column("Observed", table["observed"]), tmp_path / "panel.parquet")
    with pytest.raises(InputError, match=r"column 'observed' occurs 2 times"):
        LatentDemand("weekly-mean").fit(tmp_path / "panel.parquet", executor=serially)


@pytest.mark.parametrize("name", ["future", "weather_usual", "shared_off_1"])
def test_names_of_computed_columns_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=rf"panel: '{name}' is the name of a column that is computed.*Rename"):
        fit(panel("a").assign(**{name: 1.0}))
    rain = pd.DataFrame({"time": pd.date_range("2024-01-01", periods=700, freq="h", tz="UTC"), name: np.arange(700.0)})
    with pytest.raises(InputError, match=rf"weather: '{name}' is the name of a column that is computed.*Rename"):
        fit(panel("a"), weather=rain, timezone="UTC")


@pytest.mark.parametrize("name", ["t", "T", "hour", "Hour", "day_of_week", "hour_of_week"])
def test_names_of_the_calendar_are_refused(name: str) -> None:
    """They were left out without a word; in other letter case, DuckDB renamed the calendar's own."""
    with pytest.raises(InputError, match=rf"panel: '{name}' is the name of a column that is computed.*leave it out"):
        fit(panel("a").assign(**{name: np.arange(len(panel("a")), dtype=float)}))


def test_the_index_that_pandas_stores_in_a_file_is_no_covariate(tmp_path) -> None:
    pytest.importorskip("pyarrow")
    rows = panel("a").sample(frac=1.0, random_state=0)
    rows.to_parquet(tmp_path / "panel.parquet")
    with open_panel(tmp_path / "panel.parquet") as file:
        assert set(file.columns) == set(rows.columns)


@pytest.mark.parametrize("minutes", [-30.0, 61.0, 1e6, np.inf])
def test_minutes_out_of_stock_are_within_the_bin(minutes: float) -> None:
    words = "out_minutes must be 0 to the minutes of the bin, or missing; 672 bins differ"
    assert words in reason(panel("a").assign(out_minutes=minutes, available_minutes=60, stockout_minutes=0))


@pytest.mark.parametrize("minutes", [-1.0, 1e5, np.inf])
def test_their_standard_deviation_is_too(minutes: float) -> None:
    assert "out_sd must be 0 to the minutes of the bin, or missing" in reason(panel("a").assign(out_sd=minutes))


def test_supply_and_time_out_of_stock_fit_into_the_bin() -> None:
    assert "exposure and the time out of stock must fit into the bin; 68 bins" in reason(
        panel("a").assign(exposure=1.0)
    )


@pytest.mark.parametrize("minutes", [0, 30, 58, 62])
def test_minutes_of_the_states_sum_to_those_of_the_bin(minutes: int) -> None:
    """Minutes in no state were taken for closed ones by some, and for unknown ones by others."""
    rows = panel("a")
    rows.loc[5, ["available_minutes", "exposure"]] = minutes, min(minutes, 60) / 60
    said = reason(rows)
    assert "available_minutes, stockout_minutes, closed_minutes, unknown_minutes must sum to minutes" in said
    assert "1 bins differ, the first at 2024-01-01 05:00:00+00:00" in said
    assert f"minutes 60, available_minutes {minutes}, stockout_minutes 0" in said


@pytest.mark.parametrize("minutes", [59, 61])
def test_minutes_of_the_states_may_be_rounded(minutes: int) -> None:
    assert not fit(panel("a").assign(available_minutes=lambda p: minutes - p["stockout_minutes"])).failures


def test_numbers_of_weather_in_a_panel_may_be_too_large_to_use() -> None:
    rain = np.where(np.arange(672) % 7 == 0, 1e308, np.arange(672) % 3)
    found = LatentDemand("exposure", draws=20).fit(panel("a").assign(rain=rain), executor=serially)
    assert not found.failures


def test_weather_columns_are_a_list_of_names() -> None:
    for columns in ("rain", 5):
        with pytest.raises(UnmetError, match=r"weather_columns: expected a list of names of columns; got"):
            fit(panel("a"), weather=panel("a")[["start"]], timezone="UTC", weather_columns=columns)


def test_no_weather_column_is_not_every_weather_column() -> None:
    hours = pd.date_range("2024-01-01", periods=700, freq="h", tz="UTC")
    rain = pd.DataFrame({"time": hours, "rain": np.arange(700.0)})
    for columns in ([], ()):
        with pytest.raises(InputError, match=r"weather_columns: expected at least one name of a column; got none\."):
            fit(panel("a"), weather=rain, timezone="UTC", weather_columns=columns)


def test_a_time_zone_is_checked_without_weather_too() -> None:
    with pytest.raises(InputError, match="'Mars' is not a known time zone"):
        fit(panel("a"), timezone="Mars")


def with_columns(number: int) -> pd.DataFrame:
    rows = panel("a")
    values = np.random.default_rng(0).integers(0, 9, (len(rows), number)).astype("int8")
    more = pd.DataFrame(values, columns=[f"c{i}" for i in range(number)])
    return pd.concat([rows, more, pd.DataFrame({"note": ["x"] * len(rows)})], axis=1).assign(holiday=False)


def test_a_panel_with_more_covariates_than_a_model_should_have_is_refused(tmp_path: Path) -> None:
    with_columns(51).to_parquet(tmp_path / "panel.parquet")
    with (
        pytest.raises(InputError, match=r"panel\.parquet: 51 columns of numbers .* at most 50\. Remove columns"),
        open_panel(tmp_path / "panel.parquet"),
    ):
        pass
    with pytest.raises(InputError, match=r"panel: 51 columns of numbers"):
        fit(with_columns(51))
    assert not fit(with_columns(50)).failures


def test_a_panel_with_too_many_columns_is_refused_before_it_is_read(tmp_path: Path) -> None:
    rows = with_columns(2_000)
    rows.to_parquet(tmp_path / "panel.parquet")
    for given in (tmp_path / "panel.parquet", rows):
        with pytest.raises(InputError, match=r"panel(\.parquet)?: it has 2,013 columns; expected at most 2,000"):
            fit(given)
