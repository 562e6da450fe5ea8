"""Errors of DuckDB, in words for users."""

from __future__ import annotations

import errno
import os

import duckdb
import pytest

from unmet._exceptions import FileFormatError
from unmet._storage.sql import reading


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_file_that_the_system_does_not_give_is_not_called_damaged(number):
    """A panel of another user was to be copied or exported again."""
    reason = os.strerror(number)
    with (
        pytest.raises(FileFormatError, match=f"^a.parquet: cannot be read: {reason}. ") as caught,
        reading("a.parquet"),
    ):
        raise duckdb.IOException(f'IO Error: Cannot open file "/data/a.parquet": {reason}\n\nLINE 1: SELECT')
    assert "damaged" not in str(caught.value)
