"""Memory that cannot be had is refused before it is asked for, with the amount and what to do instead."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from unmet import CensoredGP, FileFormatError, InputError, TobitRegressor
from unmet import _memory as memory
from unmet.kernels import Periodic

X = np.linspace(0, 10, 30)[:, None]
Y = np.sin(X[:, 0])
HUGE = 10**12


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 10**9)


def npy(descr: str, shape: tuple[int, ...]) -> bytes:
    """An array's header, followed by a few bytes."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + bytes(64)


def rewrite(path: Path, arrays: dict[str, bytes], header: dict | None = None, how: int = zipfile.ZIP_STORED) -> None:
    """Write the archive again with other arrays, whose digests are right."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    old = json.loads(parts.pop("header.json")) | (header or {})
    del old["header_digest"]
    for name, blob in arrays.items():
        parts[f"{name}.npy"] = blob
        old["digests"][name] = hashlib.sha256(blob).hexdigest()
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, blob in {"header.json": json.dumps(old).encode(), **parts}.items():
            archive.writestr(name, blob)


@pytest.mark.parametrize(
    ("descr", "shape"),
    [("<f8", (HUGE,)), ("<f8", (HUGE, HUGE)), ("<f8", (0, HUGE)), ("<f8", (7,)), ("<U100000000", (9,)), ("|O", (8,))],
)
@pytest.mark.parametrize("estimator", [CensoredGP, TobitRegressor])
def test_arrays_that_claim_more_than_the_file_has(tmp_path, estimator, descr, shape):
    estimator().fit(X, Y).save(tmp_path / "model")
    name = "X" if estimator is CensoredGP else "coef"
    rewrite(tmp_path / "model", {name: npy(descr, shape)})
    with pytest.raises(FileFormatError, match=rf"array '{name}' claims .*bytes; it has 64"):
        estimator.load(tmp_path / "model")


def test_a_compressed_archive_is_refused_before_it_is_unpacked(tmp_path):
    CensoredGP(optimizer=None).fit(X, Y).save(tmp_path / "model")
    rewrite(tmp_path / "model", {"X": npy("<f8", (8,)) + bytes(10**8)}, how=zipfile.ZIP_DEFLATED)
    assert (tmp_path / "model").stat().st_size < 10**6
    with pytest.raises(FileFormatError, match="compressed"):
        CensoredGP.load(tmp_path / "model")


def test_a_file_that_asks_for_many_features(tmp_path):
    CensoredGP(Periodic(period=3.0), optimizer=None, inference="lowrank").fit(X, Y).save(tmp_path / "model")
    rewrite(tmp_path / "model", {}, {"features": {"block": "harmonics", "count": HUGE}})
    with pytest.raises(FileFormatError, match=r"30 rows and 2,000,000,000,001 features takes about .* GB of memory"):
        CensoredGP.load(tmp_path / "model")


def test_deeply_nested_headers_are_refused(tmp_path):
    CensoredGP(optimizer=None).fit(X, Y).save(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model", "w") as archive:
        archive.writestr("header.json", "[" * 200_000)
    with pytest.raises(FileFormatError, match="not a model"):
        CensoredGP.load(tmp_path / "model")


@pytest.mark.usefixtures("little")
def test_dense_inference_with_many_rows():
    long = np.arange(50_000.0)
    with pytest.raises(InputError, match=r'50,000 rows takes about 180 GB of memory; 1\.0 GB .* inference="lowrank"'):
        CensoredGP(inference="dense").fit(long[:, None], np.sin(long))


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("inference", ["dense", "lowrank"])
def test_the_covariance_of_many_points(inference):
    gp = CensoredGP(optimizer=None, inference=inference).fit(X, Y)
    many = np.linspace(0, 10, 30_000)[:, None]
    with pytest.raises(InputError, match=r"30,000 points takes about 32\.4 GB of memory.*return_std=True"):
        gp.predict(many, return_cov=True)
    if inference == "dense":
        with pytest.raises(InputError, match=r"30,000 points takes about.*fewer points at a time"):
            gp.sample(many)
    else:
        assert gp.sample(many).shape == (1, 30_000)
    assert gp.predict(many, return_std=True)[1].shape == (30_000,)


@pytest.mark.parametrize("inference", ["dense", "lowrank"])
def test_draws_without_end(inference):
    gp = CensoredGP(optimizer=None, inference=inference).fit(X, Y)
    with pytest.raises(InputError, match=r"1,000,000,000,000 draws of 30 points takes about .* GB of memory.*fewer"):
        gp.sample(X, 10**12)


def test_available_memory_is_that_of_the_container_if_less(tmp_path, monkeypatch):
    for name, text in {
        "memory.max": "5000",
        "memory.current": "4000",
        "memory.stat": "active_file 700\nanon 9\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "_CONTAINERS", ((str(tmp_path), "memory.max", "memory.current"),))
    assert memory.available_memory() == 1700
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_memory() != 1700
