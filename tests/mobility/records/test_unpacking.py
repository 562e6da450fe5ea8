"""Packed files and documents are read within bounds, and damage is noticed."""

from __future__ import annotations

import gzip
import os
import resource
import zipfile
from pathlib import Path

import pytest

from unmet._exceptions import FileFormatError, InputError
from unmet.mobility.records.read import read_records
from unmet.mobility.records.unpacking import read_json

TRIPS = "started_at,start_station_id\n" + "".join(
    f"2021-07-01 08:{i % 60:02}:{i % 59:02},s{i % 7}\n" for i in range(9999)
)


def test_a_flipped_bit_in_a_gzipped_file_is_noticed(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(TRIPS.encode(), mtime=0))
    path = tmp_path / "a.csv.gz"
    for place in (0.3, 0.5, 0.7):
        damaged = packed.copy()
        damaged[int(place * len(packed))] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match="damaged or incomplete"):
            read_records(path, timezone="UTC")


def test_a_zip_of_many_members_is_refused_by_what_it_unpacks_to_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmet.mobility.records.unpacking._LARGE", 4 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(20):
            archive.writestr(f"{i}.csv", b"0" * (1 << 20))
    with pytest.raises(FileFormatError, match="zip bomb"):
        read_records(tmp_path / "a.zip", timezone="UTC")


def test_more_files_than_the_memory_allows_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for i in range(900):
            archive.writestr(f"{i}.csv", TRIPS[:60])
    with pytest.raises(InputError, match=r"too many files.*--memory"):
        read_records(tmp_path / "a.zip", timezone="UTC", memory="100MB")
    for i in range(900):
        (tmp_path / f"{i}.csv").write_text(TRIPS[:60])
    (tmp_path / "a.zip").unlink()
    with pytest.raises(InputError, match=r"too many files.*--memory"):
        read_records(tmp_path, timezone="UTC", memory="100MB")


def test_files_of_too_many_headers_are_refused_before_all_are_opened(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for i in range(101):
            archive.writestr(f"{i}.csv", f"started_at,start_station_id,c{i}\n2021-07-01 08:00,s1,x\n")
    with pytest.raises(InputError, match=r"a.zip:100.csv: the files have more than 100 different headers"):
        read_records(tmp_path / "a.zip", timezone="UTC")


def test_a_gzipped_file_is_refused_by_what_it_unpacks_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmet.mobility.records.unpacking._LARGE", 4 << 20)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"0" * (8 << 20)))
    with pytest.raises(FileFormatError, match="zip bomb"):
        read_records(tmp_path / "a.csv.gz", timezone="UTC")


def test_a_document_larger_than_the_memory_allows_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "station_information.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(90):
            file.write(b"[" * 10_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FileFormatError, match=r"larger than 62,500,000 bytes.*--memory"):
        read_json(path, 2_000_000_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' * 100_000, "nested too deeply"),
        ('["\\ud800"]', "text or number of the document cannot be read"),
        ("[" + "9" * 5000 + "]", "text or number of the document cannot be read"),
        ("", "empty"),
    ],
)
def test_strange_documents_are_refused(tmp_path: Path, content: str, match: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(FileFormatError, match=match):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("content", [b'["\xed\xa0\x80"]', '["\\ud800"]'.encode("utf-16"), b'["\xe9"]'])
def test_documents_that_are_not_text_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(FileFormatError, match="text or number of the document cannot be read"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_documents_may_be_in_any_encoding_of_json(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.json").write_bytes('["é \\ud83d\\ude00"]'.encode(encoding))
    assert read_json(tmp_path / "a.json") == ["é 😀"]


def test_a_name_that_is_not_utf8_is_refused_and_shown(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.csv"))).write_text(TRIPS)
    with pytest.raises(FileFormatError, match=r"a\\xff.csv: the name of this file is not UTF-8"):
        read_records(tmp_path, timezone="UTC")
