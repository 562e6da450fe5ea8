"""What several test files share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data, or a skip that says where it was looked for."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("UNMET_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"the real data is not there: {folder} (set UNMET_DATA to its folder)")
    return folder
