"""On the way through one run, the panel's file is opened once and hashed once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pipeline.small_city import city_settings, save_city
from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import file as panel_file
from unmet.pipeline import run


@pytest.fixture
def counted(monkeypatch):
    """How often files named ``panel.parquet`` are opened as panels and hashed."""
    counts = {"opened": 0, "hashed": 0}
    digest, check = hashlib.file_digest, panel_file.check_types

    def hashing(stream, *arguments):
        counts["hashed"] += Path(stream.name).name == "panel.parquet"
        return digest(stream, *arguments)

    def opening(*arguments):
        counts["opened"] += 1
        return check(*arguments)

    monkeypatch.setattr(hashlib, "file_digest", hashing)
    monkeypatch.setattr(panel_file, "check_types", opening)
    return counts


@pytest.mark.slow
def test_a_run_opens_and_hashes_its_panel_once(tmp_path, counted):
    city = save_city(tmp_path)
    run(city_settings(city, tmp_path / "out"))
    assert counted == {"opened": 1, "hashed": 1}
    run(city_settings(city, tmp_path / "out"))  # reused; hashed because it was moved since
    assert counted == {"opened": 2, "hashed": 2}
    LatentDemand("weekly-mean", draws=20).fit(tmp_path / "out" / "panel.parquet", jobs=1)
    assert counted == {"opened": 3, "hashed": 3}
