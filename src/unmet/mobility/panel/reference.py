"""References to panels: workers that reach the panel's file read the rows of their zones themselves."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from unmet._exceptions import InputError
from unmet._storage.sql import connect, parquet_rows, path_literal, reading
from unmet.mobility.panel.file import PanelFile

__all__ = ["PanelReference", "check_reachable"]


@dataclass(frozen=True)
class PanelReference:
    """A panel's file, and what is joined to its rows.

    Attributes
    ----------
    path : Path
        The file, by a path that all workers have.
    size : int
        Its length in bytes.
    columns : dict
        As of `PanelFile`.
    features, future : DataFrame or None
        As of `PanelFile.set_features` and `PanelFile.set_future`.
    """

    path: Path
    size: int
    columns: dict[str, str]
    features: pd.DataFrame | None = None
    future: pd.DataFrame | None = None

    @classmethod
    def of(
        cls, file: PanelFile, features: pd.DataFrame | None = None, future: pd.DataFrame | None = None
    ) -> PanelReference | None:
        """Refer to an open panel; return None if it has no file."""
        if file.path is None:
            return None
        path = file.path.resolve()
        return cls(path, path.stat().st_size, file.columns, features, future)

    @contextmanager
    def opened(self) -> Iterator[PanelFile]:
        """Open the panel for `PanelFile.rows_of`: its rows are the same to the last bit on every machine."""
        check_reachable(self.path)
        if self.path.stat().st_size != self.size:
            raise InputError(f"{self.path}: has changed since the work began. Start again.")
        with connect(threads=1) as connection:
            with reading(str(self.path)):
                rows = parquet_rows(connection, path_literal(str(self.path)))
                connection.execute(f"CREATE VIEW panel AS {rows}")
            file = PanelFile(connection, str(self.path), (), self.columns, {}, "", self.path)
            file.set_features(self.features)
            file.set_future(self.future)
            yield file


def check_reachable(path: Path) -> None:
    """Refuse a file or folder that this worker does not see."""
    if not path.exists():
        raise InputError(
            f"The worker on {socket.gethostname()} has no {path}. The panel and the folder of the results must be on "
            "storage that all workers have under the same path, such as a network share."
        )
