"""Saved models: the same after a round trip, and nothing that is not one of them is read."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unmet import CensoredGP, FileFormatError, InputError, TobitRegressor
from unmet.kernels import Linear, LogNormal, Parameter, Periodic, SquaredExponential

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"t": np.linspace(0, 10, 40), "rain": RNG.normal(size=40)})
TRUTH = 3 + np.sin(FRAME["t"].to_numpy()) + 0.2 * RNG.normal(size=40)
CENSORED = TRUTH > 3.5
Y = np.minimum(TRUTH, 3.5)
KERNEL = SquaredExponential(lengthscale=Parameter(prior=LogNormal(2.0, 1.0)), columns="t") + Linear(columns=["rain"])


@pytest.fixture
def fitted() -> CensoredGP:
    gp = CensoredGP(KERNEL, noise_variance=Parameter(0.1, bounds=(0.01, 1.0)), max_iter=np.int64(50))
    return gp.fit(FRAME, Y, censored=CENSORED)


@pytest.fixture
def saved(fitted: CensoredGP, tmp_path: Path) -> Path:
    path = tmp_path / "model.unmet"
    fitted.save(path)
    return path


def test_a_loaded_model_predicts_the_same(fitted: CensoredGP, saved: Path) -> None:
    loaded = CensoredGP.load(saved)
    for got, expected in zip(
        loaded.predict(FRAME, return_std=True), fitted.predict(FRAME, return_std=True), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-7)
    assert loaded.log_marginal_likelihood_ == pytest.approx(fitted.log_marginal_likelihood_, abs=1e-7)
    assert loaded.kernel_ == fitted.kernel_
    assert loaded.kernel == KERNEL
    assert loaded.noise_variance == fitted.noise_variance
    assert loaded.noise_variance_ == fitted.noise_variance_
    assert loaded.converged_ == fitted.converged_
    assert loaded.feature_names_in_.tolist() == ["t", "rain"]
    assert (loaded.y_mean_, loaded.y_scale_) == (fitted.y_mean_, fitted.y_scale_)


def test_a_loaded_model_can_be_fitted_again_and_saved_again(saved: Path, tmp_path: Path) -> None:
    loaded = CensoredGP.load(saved)
    loaded.save(tmp_path / "again.unmet")
    again = CensoredGP.load(tmp_path / "again.unmet")
    np.testing.assert_allclose(again.predict(FRAME), loaded.predict(FRAME), rtol=1e-7)
    loaded.fit(FRAME, Y, censored=CENSORED)


def test_a_model_without_names_or_a_kernel_of_its_own(tmp_path: Path) -> None:
    gp = CensoredGP(optimizer=None, noise_variance=np.float32(0.5)).fit(FRAME.to_numpy(), Y)
    gp.save(tmp_path / "m")
    loaded = CensoredGP.load(tmp_path / "m")
    assert loaded.kernel is None
    assert not hasattr(loaded, "feature_names_in_")
    np.testing.assert_allclose(loaded.predict(FRAME.to_numpy()), gp.predict(FRAME.to_numpy()), rtol=1e-9)


def test_the_file_holds_arrays_and_json_and_no_pickle(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        names = archive.namelist()
        assert "header.json" in names
        assert all(n == "header.json" or n.endswith(".npy") for n in names)
        for name in names:
            blob = archive.read(name)
            if name.endswith(".npy"):
                assert blob.startswith(b"\x93NUMPY")
            else:
                json.loads(blob)


def test_nothing_is_left_behind_when_writing_fails(
    fitted: CensoredGP, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model.unmet"
    target.write_bytes(b"what was there before")

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", broken)
    with pytest.raises(OSError, match="disk full"):
        fitted.save(target)
    assert target.read_bytes() == b"what was there before"
    assert [p.name for p in tmp_path.iterdir()] == ["model.unmet"]


def rewrite(path: Path, change) -> None:
    """Write the archive anew with its header changed, and without the header's digest, as earlier versions did."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(parts["header.json"])
    header.pop("header_digest", None)
    change(header, parts)
    parts["header.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, blob in parts.items():
            archive.writestr(name, blob)


def put_array(path: Path, name: str, array: np.ndarray) -> None:
    """Write the archive anew with another array, and its digest."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=True)

    def change(header: dict, parts: dict) -> None:
        parts[f"{name}.npy"] = buffer.getvalue()
        header["digests"][name] = hashlib.sha256(buffer.getvalue()).hexdigest()

    rewrite(path, change)


class TestRefusals:
    @pytest.mark.parametrize("coef", [np.full(2, np.nan), np.full(2, 1j)], ids=["NaN", "complex"])
    def test_other_coefficients_of_a_tobit_model(self, tmp_path: Path, coef: np.ndarray) -> None:
        TobitRegressor().fit(FRAME, Y, censored=CENSORED).save(tmp_path / "tobit")
        put_array(tmp_path / "tobit", "coef_", coef)
        with pytest.raises(FileFormatError, match="tobit"):
            TobitRegressor.load(tmp_path / "tobit")

    @pytest.mark.parametrize("names", [5, "t", [], {}, True, ["t"], ["t", 5], ["t", "rain", "snow"]])
    def test_other_names_of_columns(self, saved: Path, names: object) -> None:
        rewrite(saved, lambda header, _: header.update(feature_names_in=names))
        with pytest.raises(FileFormatError, match="does not describe a CensoredGP"):
            CensoredGP.load(saved)

    def test_a_kernel_without_columns(self, saved: Path) -> None:
        rewrite(saved, lambda header, _: header["kernel"]["left"].update(columns=None))
        with pytest.raises(FileFormatError, match="does not describe a CensoredGP"):
            CensoredGP.load(saved)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("scale_", "wide"),
            ("intercept_", None),
            ("n_features_in_", 7),
            ("intercept_", float("nan")),
            ("intercept_se_", True),
            ("scale_se_", False),
            ("scale_se_", None),
            ("log_likelihood_", True),
            ("converged_", 5),
        ],
    )
    def test_other_numbers_of_a_tobit_model(self, tmp_path: Path, name: str, value: object) -> None:
        TobitRegressor().fit(FRAME, Y, censored=CENSORED).save(tmp_path / "tobit")
        rewrite(tmp_path / "tobit", lambda header, _: header["fitted"].update({name: value}))
        with pytest.raises(FileFormatError, match="does not describe a TobitRegressor"):
            TobitRegressor.load(tmp_path / "tobit")

    @pytest.mark.parametrize(
        ("name", "shape"),
        [("coef_se_", (3,)), ("coef_se_", (2, 1)), ("covariance_", (3, 3)), ("_covariance", (4,)), ("_covariance", ())],
    )
    def test_errors_of_a_tobit_model_of_another_shape(self, tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
        TobitRegressor().fit(FRAME, Y, censored=CENSORED).save(tmp_path / "tobit")
        put_array(tmp_path / "tobit", name, np.ones(shape))
        with pytest.raises(FileFormatError, match=f"{name}: expected"):
            TobitRegressor.load(tmp_path / "tobit")

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileFormatError, match="no such file"):
            CensoredGP.load(tmp_path / "nowhere")

    @pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 broken", pickle.dumps({"a": 1})])
    def test_a_foreign_file(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "foreign"
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match="not a model written by save"):
            CensoredGP.load(path)

    def test_a_foreign_zip(self, tmp_path: Path) -> None:
        path = tmp_path / "foreign.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme.txt", "hello")
        with pytest.raises(FileFormatError, match="not a model"):
            CensoredGP.load(path)

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
    def test_a_file_cut_short(self, saved: Path, share: float) -> None:
        whole = saved.read_bytes()
        saved.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(FileFormatError):
            CensoredGP.load(saved)

    def test_any_changed_byte_is_noticed_or_harmless(self, fitted: CensoredGP, saved: Path) -> None:
        """Flip one byte at a time, all over the file: an error, or the very same model."""
        whole = saved.read_bytes()
        expected = fitted.predict(FRAME)
        refused = 0
        for at in np.linspace(0, len(whole) - 1, 60).astype(int):
            damaged = bytearray(whole)
            damaged[at] ^= 0xFF
            saved.write_bytes(bytes(damaged))
            try:
                loaded = CensoredGP.load(saved)
            except FileFormatError:
                refused += 1
            else:
                np.testing.assert_allclose(loaded.predict(FRAME), expected, rtol=1e-7)
        assert refused > 40

    def test_a_newer_version(self, saved: Path) -> None:
        rewrite(saved, lambda header, _: header.update(version=99))
        with pytest.raises(FileFormatError, match=r"version 99 .*reads 1.*Install"):
            CensoredGP.load(saved)

    def test_another_estimator(self, saved: Path) -> None:
        rewrite(saved, lambda header, _: header.update(estimator="TobitRegressor"))
        with pytest.raises(FileFormatError, match="contains a TobitRegressor, not a CensoredGP"):
            CensoredGP.load(saved)

    def test_changed_numbers(self, saved: Path) -> None:
        def change(_: dict, parts: dict) -> None:
            parts["X.npy"] = parts["X.npy"][:-8] + bytes(8)

        rewrite(saved, change)
        with pytest.raises(FileFormatError, match="damaged: array 'X'"):
            CensoredGP.load(saved)

    @pytest.mark.parametrize("key", ["settings", "kernel", "likelihood", "y_mean", "n_features_in", "digests"])
    def test_a_header_with_a_part_missing(self, saved: Path, key: str) -> None:
        rewrite(saved, lambda header, _: header.pop(key))
        with pytest.raises(FileFormatError, match=str(saved)):
            CensoredGP.load(saved)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("kernel", {"kind": "os.system", "parameters": {}}),
            ("kernel", "SquaredExponential()"),
            ("settings", {"kernel": None, "noise_variance": None, "surprise": 1}),
            ("likelihood", {"name": "gaussian", "parameter": {"value": "many"}}),
            ("y_scale", "wide"),
            ("y_scale", float("nan")),
            ("y_scale", -1.0),
            ("y_mean", float("nan")),
            ("y_mean", 1e308),
        ],
    )
    def test_a_header_that_makes_no_sense(self, saved: Path, key: str, value: object) -> None:
        rewrite(saved, lambda header, _: header.update({key: value}))
        with pytest.raises(FileFormatError, match=str(saved)):
            CensoredGP.load(saved)

    @pytest.mark.parametrize(
        "array",
        [
            np.array([{"a": 1}], dtype=object),
            np.full((40, 2), np.nan),
            np.full((40, 2), 1j),
            np.full((40, 2), "1"),
            np.ones((40, 2), dtype=bool),
        ],
        ids=["a pickle", "NaN", "complex", "text", "bool"],
    )
    def test_another_kind_of_array(self, saved: Path, array: np.ndarray) -> None:
        put_array(saved, "X", array)
        with pytest.raises(FileFormatError, match=str(saved)):
            CensoredGP.load(saved)

    def test_a_changed_header(self, saved: Path) -> None:
        digest = read_header(saved)["header_digest"]
        rewrite(saved, lambda header, _: header.update(header_digest=digest))
        CensoredGP.load(saved)
        rewrite(saved, lambda header, _: header.update(header_digest=digest, y_mean=header["y_mean"] + 1.0))
        with pytest.raises(FileFormatError, match="damaged: its header does not match its digest"):
            CensoredGP.load(saved)

    @pytest.mark.parametrize(
        ("leaf", "changes"),
        [
            ("trend", {"counts": [-1]}),
            ("trend", {"counts": [0]}),
            ("trend", {"counts": [True]}),
            ("trend", {"counts": [3.0]}),
            ("trend", {"counts": []}),
            ("trend", {"counts": [3, 3]}),
            ("trend", {"half": [0.0]}),
            ("trend", {"high": [float("nan")]}),
            ("season", {"count": -1}),
            ("season", {"count": 2.5}),
            ("rain", {"columns": 0}),
            ("rain", {"columns": 2}),
        ],
        ids=str,
    )
    def test_features_that_are_none(self, tmp_path: Path, leaf: str, changes: dict[str, Any]) -> None:
        path = tmp_path / "lowrank"
        kernel = SquaredExponential(columns="t") + Periodic(5.0, columns="t") + Linear(columns="rain")
        CensoredGP(kernel, inference="lowrank", optimizer=None).fit(FRAME, Y, censored=CENSORED).save(path)

        def change(header: dict, _: dict) -> None:
            features = header["features"]
            leaves = {"trend": features["left"]["left"], "season": features["left"]["right"], "rain": features["right"]}
            leaves[leaf].update(changes)

        rewrite(path, change)
        with pytest.raises(FileFormatError, match="does not describe a CensoredGP"):
            CensoredGP.load(path)


def read_header(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        return dict(json.loads(archive.read("header.json")))


def test_periodic_kernels_with_fixed_periods_come_back(tmp_path: Path) -> None:
    kernel = Periodic(Parameter(6.28, fixed=True), columns="t")
    gp = CensoredGP(kernel, optimizer=None).fit(FRAME, Y)
    gp.save(tmp_path / "m")
    assert CensoredGP.load(tmp_path / "m").kernel_ == gp.kernel_


def test_a_tobit_model_is_the_same_after_a_round_trip(tmp_path: Path) -> None:
    tobit = TobitRegressor(max_iter=np.int64(50)).fit(FRAME, Y, censored=CENSORED)
    tobit.save(tmp_path / "tobit.unmet")
    loaded = TobitRegressor.load(tmp_path / "tobit.unmet")
    np.testing.assert_array_equal(loaded.predict_quantiles(FRAME), tobit.predict_quantiles(FRAME))
    pd.testing.assert_frame_equal(loaded.summary(), tobit.summary())
    fitted = {name for name in vars(tobit) if name.endswith("_")}
    assert {name for name in vars(loaded) if name.endswith("_")} == fitted
    for name in fitted:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(tobit, name))
    assert loaded.get_params() == tobit.get_params()
    with pytest.raises(InputError):
        loaded.predict(FRAME[["rain", "t"]])
    loaded.fit(FRAME, Y)


def test_a_tobit_model_with_infinite_errors_is_the_same_after_a_round_trip(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="repeat each other"):
        tobit = TobitRegressor().fit(FRAME.assign(one=1.0, two=2.0), Y, censored=CENSORED)
    tobit.save(tmp_path / "tobit.unmet")
    pd.testing.assert_frame_equal(TobitRegressor.load(tmp_path / "tobit.unmet").summary(), tobit.summary())


def test_one_estimator_does_not_load_the_others_file(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="contains a CensoredGP, not a TobitRegressor"):
        TobitRegressor.load(saved)
    TobitRegressor().fit(FRAME, Y).save(tmp_path / "tobit.unmet")
    with pytest.raises(FileFormatError, match="contains a TobitRegressor, not a CensoredGP"):
        CensoredGP.load(tmp_path / "tobit.unmet")


def test_a_tobit_file_that_lacks_something_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tobit.unmet"
    TobitRegressor().fit(FRAME, Y).save(path)
    rewrite(path, lambda header, _: header["fitted"].pop("scale_"))
    with pytest.raises(FileFormatError, match="does not describe a TobitRegressor"):
        TobitRegressor.load(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda header: header.pop("y_mean"), "there is no 'y_mean'"),
        (lambda header: header.update(y_mean="wide"), "y_mean: expected a finite number, got 'wide'"),
        (lambda header: header.update(settings=5), "a part has another kind, size or range"),
        (lambda header: header["settings"].update(colour="red"), "a part has another kind, size or range"),
        (lambda header: header["kernel"].update(left=None), "a part has another kind, size or range"),
        (lambda header: header.update(kernel={"kind": "round"}), "Unknown kernel 'round'"),
    ],
)
def test_a_changed_header_is_refused_without_quoting_python(saved: Path, change: Any, reason: str) -> None:
    rewrite(saved, lambda header, _: change(header))
    with pytest.raises(FileFormatError, match="does not describe a CensoredGP") as caught:
        CensoredGP.load(saved)
    assert reason in str(caught.value)
    assert not re.search(r"Error\(|__init__|NoneType|object is|attribute", str(caught.value))
