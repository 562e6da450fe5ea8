"""Frames and series: columns that are no numbers, names of rows, and rows in another order."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from unmet import CensoredGP, InputError, TobitRegressor

N = 30
HOURS = pd.date_range("2024-03-01", periods=N, freq="h")
T = np.arange(N, dtype=float)
Y = 5 + np.sin(T / 3)
BOTH = pytest.mark.parametrize("estimator", [CensoredGP(optimizer=None), TobitRegressor()], ids=["gp", "tobit"])


def labelled() -> pd.DataFrame:
    return pd.DataFrame({"t": T, "rain": np.cos(T)}, index=[f"s{i}" for i in range(N)])


@BOTH
@pytest.mark.parametrize(
    "times",
    [HOURS, HOURS.tz_localize("UTC"), HOURS.to_pydatetime(), HOURS.date, HOURS - HOURS[0], HOURS.time],
    ids=["naive", "aware", "objects", "dates", "lengths", "clock"],
)
def test_a_column_of_times_is_named_with_what_to_do(estimator: Any, times: Any) -> None:
    frame = pd.DataFrame({"t": T, "when": times})
    with pytest.raises(InputError, match=r"column 'when' contains dates or times, such as .*t\.dt\.hour"):
        estimator.fit(frame, Y)
    with pytest.raises(InputError, match="column 'when' contains dates or times"):
        estimator.fit(frame[["when"]], Y)


@BOTH
def test_times_without_a_name_are_refused_too(estimator: Any) -> None:
    with pytest.raises(InputError, match="X must be numbers; got dates or times"):
        estimator.fit(HOURS.to_numpy()[:, None], Y)
    frame = pl.DataFrame({"when": [datetime.datetime(2024, 3, 1, i % 24) for i in range(N)]})
    with pytest.raises(InputError, match="column 'when' contains dates or times"):
        estimator.fit(frame, Y)


@BOTH
@pytest.mark.parametrize("dtype", [object, "str", "category"])
def test_a_column_of_words_is_named_with_what_to_do(estimator: Any, dtype: Any) -> None:
    frame = pd.DataFrame({"t": T, "zone": pd.Series(["north", "south"] * (N // 2), dtype=dtype)})
    with pytest.raises(InputError, match=r"column 'zone' contains text, such as 'north'.*OneHotEncoder"):
        estimator.fit(frame, Y)
    fitted = estimator.fit(frame[["t"]], Y)
    with pytest.raises(InputError, match="column 't' contains text"):
        fitted.predict(frame.rename(columns={"t": "u", "zone": "t"})[["t"]])


@BOTH
def test_numbers_in_columns_of_other_types_are_numbers(estimator: Any) -> None:
    expected = estimator.fit(pd.DataFrame({"t": T}), Y).predict(pd.DataFrame({"t": T}))
    for dtype in (object, "Float64", "category"):
        frame = pd.DataFrame({"t": pd.Series(T, dtype=dtype)})
        np.testing.assert_allclose(estimator.fit(frame, Y).predict(frame), expected)
    flags = pd.DataFrame({"t": T, "open": T > 10})
    estimator.fit(flags, Y)
    with pytest.raises(InputError, match="column 'open' contains values of the type list, such as"):
        estimator.fit(flags.assign(open=[[1]] * N), Y)


@BOTH
def test_a_missing_value_in_a_column_of_objects_is_missing(estimator: Any) -> None:
    frame = pd.DataFrame({"t": [None, *T[1:]]}, dtype=object)
    with pytest.raises(InputError, match=r"must not contain NaN.*column 't', row 0"):
        estimator.fit(frame, Y)


@BOTH
def test_errors_name_rows_by_position_and_by_index(estimator: Any) -> None:
    frame = labelled()
    holed = frame.copy()
    holed.iloc[7, 1] = np.nan
    with pytest.raises(InputError, match=r"column 'rain', row 7 is nan .* Row 7 has the index label 's7'"):
        estimator.fit(holed, Y)
    fitted = estimator.fit(frame, Y)
    with pytest.raises(InputError, match=r"row 7 is nan .* Row 7 has the index label 's7'"):
        fitted.predict(holed)
    bad = pd.Series(Y, index=frame.index)
    bad.iloc[4] = np.inf
    with pytest.raises(
        InputError, match=r"y must not contain NaN or infinity; row 4 is inf .* Row 4 has the index label 's4'"
    ):
        estimator.fit(frame.to_numpy(), bad)
    lower = pd.Series(Y + 1.0, index=HOURS)
    with pytest.raises(InputError, match=r"row 0 has .* Row 0 has the index label 2024-03-01 00:00:00"):
        estimator.fit(T[:, None], lower=lower, upper=Y)
    labels = np.zeros(N)
    labels[5] = 2
    with pytest.raises(InputError, match=r"row 5 is 2\.0 .* Row 5 has the index label 's5'"):
        estimator.fit(frame, Y, censored=labels)


@BOTH
def test_without_an_index_of_ones_own_rows_are_positions(estimator: Any) -> None:
    frame = labelled().reset_index(drop=True)
    frame.iloc[7, 1] = np.nan
    with pytest.raises(InputError, match="row 7 is nan"):
        estimator.fit(frame, Y)


def test_a_wrong_exposure_is_named_by_index() -> None:
    frame = labelled()[["t"]]
    exposure = np.ones(N)
    exposure[3] = 1.5
    with pytest.raises(InputError, match=r"row 3 has .* Row 3 has the index label 's3'"):
        CensoredGP(likelihood="poisson").fit(frame, np.round(Y), exposure=exposure)


@BOTH
@pytest.mark.parametrize("which", ["y", "censored", "lower"])
def test_series_with_the_rows_of_x_in_another_order_are_refused(estimator: Any, which: str) -> None:
    frame = labelled()
    given: dict[str, Any] = {"y": pd.Series(Y, index=frame.index)}
    given["lower" if which == "lower" else "censored"] = pd.Series(
        np.where(T < 5, Y, np.nan) if which == "lower" else T < 5, index=frame.index
    )
    expected = estimator.fit(frame, **given).predict(frame)
    shuffled = {**given, which: given[which].iloc[::-1]}
    with pytest.raises(
        InputError,
        match=rf"{which} has the rows of X in another order: row 0 is 's29' in {which} and 's0' in X.*{which}.loc",
    ):
        estimator.fit(frame, **shuffled)
    # As the message says; and what has rows by other names is matched by position, as ever.
    again = {**given, which: shuffled[which].loc[frame.index]}
    np.testing.assert_array_equal(estimator.fit(frame, **again).predict(frame), expected)
    plain = {**given, which: given[which].reset_index(drop=True)}
    np.testing.assert_array_equal(estimator.fit(frame, **plain).predict(frame), expected)


@BOTH
def test_labels_in_another_order_than_y_are_refused_also_without_a_frame(estimator: Any) -> None:
    y = pd.Series(Y, index=HOURS)
    censored = pd.Series(T < 5, index=HOURS)
    with pytest.raises(InputError, match="censored has the rows of y in another order"):
        estimator.fit(T[:, None], y, censored=censored.sort_index(ascending=False))
    fitted = estimator.fit(T[:, None], y, censored=censored)
    with pytest.raises(InputError, match="censored has the rows of y in another order"):
        fitted.score(T[:, None], y, censored=censored[::-1])


def test_exposure_in_another_order_is_refused() -> None:
    frame = labelled()[["t"]]
    exposure = pd.Series(np.linspace(0.5, 1, N), index=frame.index)[::-1]
    with pytest.raises(InputError, match="exposure has the rows of X in another order"):
        CensoredGP(likelihood="poisson").fit(frame, np.round(Y), exposure=exposure)


def test_bounds_and_weights_in_another_order_are_refused() -> None:
    rows = pd.Series(np.round(Y), index=labelled().index)
    exposure = pd.Series(np.linspace(0.5, 1, N), index=rows.index)
    gp = CensoredGP(likelihood="poisson", optimizer=None)
    with pytest.raises(InputError, match="exposure has the rows of lower in another order"):
        gp.fit(T[:, None], lower=rows, upper=rows, exposure=exposure[::-1])
    with pytest.raises(InputError, match="sample_weight has the rows of y in another order"):
        gp.fit(T[:, None], rows).score(T[:, None], rows, exposure[::-1])
    with pytest.raises(InputError, match="sample_weight has the rows of y in another order"):
        TobitRegressor().fit(T[:, None], rows).score(T[:, None], rows, exposure[::-1])


def test_arrow_tables_are_frames() -> None:
    arrow = pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"t": np.arange(12.0), "rain": np.arange(12.0) ** 2})
    fit = TobitRegressor().fit(arrow.table(frame), np.arange(12.0) % 5)
    assert fit.feature_names_in_.tolist() == ["t", "rain"]
    np.testing.assert_array_equal(fit.predict(arrow.table(frame)), fit.predict(frame))


def test_columns_may_have_the_names_of_methods() -> None:
    frame = pd.DataFrame({"collect": np.arange(9.0), "column_names": np.arange(9.0) ** 2})
    assert TobitRegressor().fit(frame, np.arange(9.0) % 4).n_features_in_ == 2


@pytest.mark.parametrize("table", [pl.DataFrame({"t": [1.0, 2.0]}).lazy(), {"t": [1.0, 2.0]}], ids=["lazy", "dict"])
def test_what_is_no_table_yet_is_refused(table: Any) -> None:
    with pytest.raises(InputError, match=r"X must be an array or a frame; got (LazyFrame|dict)\. Make one of it"):
        CensoredGP().fit(table, [1.0, 2.0])
