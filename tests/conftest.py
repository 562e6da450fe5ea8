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


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory):
    """A Spark master with two workers on this machine, for all tests of a session."""
    from engines.cluster import need_java, running_cluster

    need_java()
    with running_cluster(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def on_spark(spark_cluster):
    """The executor of the cluster."""
    from unmet.engines.spark import OnSpark

    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_cluster.for_drivers.items():
            patch.setenv(name, value)
        executor = OnSpark(spark_cluster.url)
        yield executor
        executor.stop()
