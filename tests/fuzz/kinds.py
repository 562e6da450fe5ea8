"""Kinds of files that are fuzzed: how each is read, and whole examples of it."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import sys
import zipfile
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path

from harness import MEMORY, run_case

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes
    ----------
    ending : str
        End of the file's name. Cases are stored as ``<kind>-<number><ending>``.
    read : callable
        Reads a file.
    examples : callable
        Returns whole files, to be damaged, given a folder for temporary files.
    """

    ending: str
    read: Callable[[Path], object]
    examples: Callable[[Path], list[bytes]]


def _unmet(*arguments: str) -> None:
    from unmet.cli import main

    sys.argv = ["unmet", *arguments]
    main()


def _panel(*records: str) -> None:
    limit = f"{MEMORY // 10**6}MB"
    _unmet("panel", *records, "--timezone", "Europe/Oslo", "--memory", limit, "--out", "panel.parquet")


def _trips(form: str = "%Y-%m-%d %H:%M:%S") -> bytes:
    rows = ["ride_id,started_at,ended_at,start_station_id,end_station_id,start_lat,start_lng"]
    for i in range(60):
        start = datetime(2021, 7, 1, 6) + timedelta(minutes=37 * i)
        ends = f"{start.strftime(form)},{(start + timedelta(minutes=9)).strftime(form)}"
        rows.append(f"r{i},{ends},s{i % 3},s{i % 2},{59.9 + i % 3 / 100},10.7{i % 3}")
    return ("\n".join(rows) + "\n").encode()


def _zip(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", content)
        archive.writestr("b.csv", content.replace(b"\nr", b"\nq"))
    return file.getvalue()


def _stations(**more: object) -> list[dict[str, object]]:
    return [{"station_id": f"s{i}", "lat": 59.9 + i / 100, "lon": 10.7, "capacity": 9, **more} for i in range(3)]


def _information() -> bytes:
    name = [{"text": "Sentrum", "language": "no"}]
    return json.dumps({"last_updated": 1_625_000_000, "data": {"stations": _stations(name=name)}}).encode()


def _status() -> bytes:
    stations = [
        {"station_id": f"s{i}", "num_bikes_available": i, "num_docks_available": 4, "is_installed": 1, "is_renting": 1,
         "last_reported": 1_625_000_000} for i in range(3)
    ]  # fmt: skip
    return json.dumps({"last_updated": 1_625_000_010, "ttl": 10, "data": {"stations": stations}}).encode()


def _polygons() -> bytes:
    ring = [[10.0, 59.0], [11.0, 59.0], [11.0, 60.0], [10.0, 60.0], [10.0, 59.0]]
    feature = {"type": "Feature", "id": "a", "properties": {}, "geometry": {"type": "Polygon", "coordinates": [ring]}}
    return json.dumps({"type": "FeatureCollection", "features": [feature]}).encode()


def _beside(path: Path, name: str, content: bytes) -> str:
    file = path.parent / name
    file.write_bytes(content)
    return str(file)


def _read_stations(path: Path) -> None:
    _panel("--trips", _beside(path, "t.csv", _trips()), "--stations", str(path))


def _read_polygons(path: Path) -> None:
    _panel("--trips", _beside(path, "t.csv", _trips()), "--zones", str(path))


def _settings(_: Path) -> list[bytes]:
    from unmet.pipeline.config import example_config

    whole = example_config().replace("#", "").replace(" Settings", "# Settings")
    short = '[records]\ntrips = "none.csv"\ntimezone = "Europe/Oslo"\n[panel]\nevery = "1h"\nstart = 2021-07-01\n'
    return [short.encode(), example_config().encode(), whole.encode()]


@cache
def _saved_panel(folder: Path) -> bytes:
    def make(path: Path) -> None:
        _panel("--trips", str(path), "--quiet")

    path = folder / "trips.csv"
    path.write_bytes(_trips())
    run_case(make, path, folder)  # in a process of its own: DuckDB's threads do not survive a fork
    return (folder / "panel.parquet").read_bytes()


def _read_panel(path: Path) -> None:
    from unmet.mobility.panel import read_panel
    from unmet.mobility.panel.opening import opened

    read_panel(path)
    with opened(path):
        pass


@cache
def _saved_models(folder: Path) -> list[bytes]:
    def make(path: Path) -> None:
        import numpy as np

        from unmet import CensoredGP, TobitRegressor

        x = np.linspace(0, 1, 12)[:, None]
        y, censored = np.sin(5 * x[:, 0]), x[:, 0] > 0.8
        CensoredGP(optimizer=None).fit(x, y, censored=censored).save(path)
        TobitRegressor().fit(x, y, censored=censored).save(path.with_name("tobit.model"))

    made = run_case(make, folder / "gp.model", folder)
    assert made.code == 0, made.output
    return [(folder / name).read_bytes() for name in ("gp.model", "tobit.model")]


def _read_model(path: Path) -> None:
    import numpy as np

    from unmet import CensoredGP, TobitRegressor, UnmetError

    try:
        model: CensoredGP | TobitRegressor = CensoredGP.load(path)
    except UnmetError:
        model = TobitRegressor.load(path)
    model.predict(np.array([[0.5]]))


def _model_headers(folder: Path) -> list[bytes]:
    """The headers of saved models; a wrong checksum or digest would hide other damage from the reader."""
    headers = [json.loads(zipfile.ZipFile(io.BytesIO(model)).read("header.json")) for model in _saved_models(folder)]
    return [json.dumps({k: v for k, v in header.items() if k != "header_digest"}).encode() for header in headers]


def _read_header(path: Path) -> None:
    """Put a header into the model of the same estimator, and read that."""
    model = "tobit.model" if b"Tobit" in path.read_bytes() else "gp.model"
    changed = path.with_name("changed.model")
    with zipfile.ZipFile(path.with_name(model)) as whole, zipfile.ZipFile(changed, "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, path.read_bytes() if name == "header.json" else whole.read(name))
    _read_model(changed)


def _segments(folder: Path) -> list[bytes]:
    from unmet.collect.segments import Segment

    path = folder / "day.segment"
    path.unlink(missing_ok=True)
    with Segment(path) as segment:
        for i in range(4):
            segment.append({"poll": i, "stations": _stations()})
    return [path.read_bytes()]


def _read_segment(path: Path) -> None:
    from unmet.collect.segments import damaged_bytes, read_segment

    for _ in read_segment(path):
        pass
    damaged_bytes(path)


def _history(_: Path) -> list[bytes]:
    """The manifest of a collector's folder, then the frames of its day, a document per line."""
    at = 1_625_000_000.0
    station = ["s1", at, at, at, 3, 0, 4, 0, True, True, True, None, False, False]
    poll = ["station_status", at, at, 60.0, 200, None, 1, 1, 0, 900, 0.2, None]
    place = ["s1", at, "Sentrum", 59.9, 10.7, 9, json.dumps({"short_name": "A"})]
    frames = [{"changes": [station], "polls": [poll], "stations": [place]}]
    for i in range(1, 4):
        now = at + 900 * i
        frames.append(
            {
                "changes": [["s1", now, now, now, 3 - i, *station[5:]]],
                "polls": [["station_status", now, now, *poll[3:]]],
            }
        )
    day = {"url": "https://feed.example/gbfs.json", "days": {}}
    return [b"\n".join(json.dumps(part).encode() for part in [day, *frames]) + b"\n"]


def _read_history(path: Path) -> None:
    """Make the folder, with right checksums, and read it: as a panel, and as the collector does when it starts."""
    from unmet._exceptions import UnmetError
    from unmet.collect.history import SystemHistory
    from unmet.collect.segments import read_segment
    from unmet.collect.summary import summarise

    manifest, *frames = path.read_bytes().split(b"\n")
    folder = path.parent / "feeds" / "city"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "open").mkdir(parents=True)
    (folder / "manifest.json").write_bytes(manifest)
    packed = [zlib.compress(frame) for frame in frames if frame]
    segment = folder / "open" / "2021-06-29.segment"
    segment.write_bytes(b"".join(struct.pack("<4sII", b"UNM1", len(p), zlib.crc32(p)) + p for p in packed))
    history = SystemHistory(folder)
    for read in (partial(summarise, history, 1_625_100_000.0), partial(deque, read_segment(segment), 0)):
        with suppress(UnmetError):
            read()
    with suppress(UnmetError):
        history.claim("https://feed.example/gbfs.json")
        history.finish("2021-06-29")
        history.last_rows("2021-06-29")
    _panel("--status", str(folder))


@cache
def _tables(folder: Path) -> list[bytes]:
    """Trips as Parquet files: as text, as times, and as seconds."""

    def make(path: Path) -> None:
        import duckdb

        rows = f"SELECT * FROM read_csv('{_beside(path, 't.csv', _trips())}', all_varchar=true)"
        times = "started_at::TIMESTAMP AS started_at, ended_at::TIMESTAMPTZ AS ended_at"
        seconds = "epoch(started_at::TIMESTAMP)::BIGINT AS started_at, epoch(ended_at::TIMESTAMP) AS ended_at"
        for i, replaced in enumerate(("ride_id AS ride_id", times, seconds)):
            target = path.with_name(f"t{i}.parquet")
            duckdb.sql(f"COPY (SELECT * REPLACE ({replaced}) FROM ({rows})) TO '{target}' (FORMAT parquet)")

    made = run_case(make, folder / "made", folder)
    assert made.code == 0, made.output
    return [(folder / f"t{i}.parquet").read_bytes() for i in range(3)]


def _csv_examples(_: Path) -> list[bytes]:
    return [_trips(), _trips("%d/%m/%Y %H:%M"), _trips("%m/%d/%y %I:%M %p"), _trips("%s")]


KINDS = {
    "trips": Kind(".csv", lambda path: _panel("--trips", str(path)), _csv_examples),
    "packed": Kind(".csv.gz", lambda path: _panel("--trips", str(path)), lambda _: [gzip.compress(_trips(), mtime=0)]),
    "archive": Kind(".zip", lambda path: _panel("--trips", str(path)), lambda _: [_zip(_trips())]),
    "status": Kind(".json", lambda path: _panel("--status", str(path)), lambda _: [_status()]),
    "stations": Kind(".json", _read_stations, lambda _: [_information()]),
    "polygons": Kind(".geojson", _read_polygons, lambda _: [_polygons()]),
    "settings": Kind(".toml", lambda path: _unmet("run", "--config", str(path), "--out", "out"), _settings),
    "panel": Kind(".parquet", _read_panel, lambda folder: [_saved_panel(folder)]),
    "model": Kind(".model", _read_model, _saved_models),
    "header": Kind(".json", _read_header, _model_headers),
    "segment": Kind(".segment", _read_segment, _segments),
    "history": Kind(".jsonl", _read_history, _history),
    "table": Kind(".parquet", lambda path: _panel("--trips", str(path)), _tables),
}
"""Kind of file by its name."""
