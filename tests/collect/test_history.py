from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from feed_server import NOON

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.hashes import file_hash
from unmet._storage.parquet import read_parquet
from unmet.collect import SystemHistory, find_histories
from unmet.collect.history import TABLES, day_of
from unmet.collect.segments import Segment

DAY = day_of(NOON)


def a_row(station: str = "a", at: float = NOON, **values: Any) -> list[Any]:
    row = dict.fromkeys(TABLES["changes"]) | {"station_id": station, "poll_time": at, "num_bikes_available": 3}
    row |= {"left_feed": False, "restated": False, "is_renting": True} | values
    return list(row.values())


def a_poll(at: float = NOON, feed: str = "station_status", **values: Any) -> list[Any]:
    return list(
        (dict.fromkeys(TABLES["polls"]) | {"feed": feed, "poll_time": at, "http_status": 200} | values).values()
    )


def history(folder: Path, polls: int = 3, start: float = NOON) -> SystemHistory:
    made = SystemHistory(folder / "city")
    made.claim("https://example.com/gbfs.json")
    with Segment(made.segment(day_of(start))) as segment:
        for i in range(polls):
            at = start + 60 * i + 0.25
            segment.append({"polls": [a_poll(at)], "changes": [a_row(at=at, num_bikes_available=i)]})
    return made


def test_a_finished_day_has_the_rows_of_its_segment_and_is_in_the_manifest(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.finish(DAY)
    assert (kept.open_days(), kept.finished_days(), kept.damaged()) == ([], [DAY], [])
    folder = kept.folder / "days" / DAY
    assert sorted(path.name for path in folder.iterdir()) == ["changes.parquet", "polls.parquet"]
    changes = read_parquet(folder / "changes.parquet")
    assert list(changes) == list(TABLES["changes"])
    assert changes["num_bikes_available"].tolist() == [0, 1, 2]
    assert [t.timestamp() for t in changes["poll_time"]] == [NOON + 60 * i + 0.25 for i in range(3)]
    assert changes["last_updated"].isna().all()
    manifest = json.loads((kept.folder / "manifest.json").read_text())
    assert manifest["url"] == "https://example.com/gbfs.json"
    assert manifest["days"][DAY]["changes.parquet"] == file_hash(folder / "changes.parquet")
    assert [path.name for path in kept.folder.rglob(".*")] == []


def test_a_day_without_any_change_can_be_read(tmp_path: Path) -> None:
    kept = history(tmp_path, polls=0)
    kept.finish(DAY)
    assert list(read_parquet(kept.folder / "days" / DAY / "changes.parquet")) == list(TABLES["changes"])


def test_the_same_segment_gives_the_same_bytes(tmp_path: Path) -> None:
    hashes = []
    for name in ("one", "two"):
        kept = history(tmp_path / name)
        kept.finish(DAY)
        hashes.append(kept.manifest()["days"])
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("step", ["_write_day", "_write_manifest", "unlink"])
def test_a_kill_at_any_step_of_finishing_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    kept = history(tmp_path)
    reference = history(tmp_path / "reference")
    reference.finish(DAY)

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path if step == "unlink" else SystemHistory, step, die)
        with pytest.raises(KeyboardInterrupt):
            kept.finish(DAY)
    assert len(rows(kept, tmp_path / "between")) == 3
    kept.finish(DAY)
    assert kept.manifest()["days"] == reference.manifest()["days"]
    assert kept.open_days() == []
    assert len(rows(kept, tmp_path / "after")) == 3


def rows(kept: SystemHistory, scratch: Path) -> list[float]:
    scratch.mkdir(exist_ok=True)
    return [t.timestamp() for path in kept.files("changes", scratch) for t in read_parquet(path)["poll_time"]]


def test_days_are_read_in_order_the_open_one_last_and_others_are_not_touched(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.finish(DAY)
    before = (kept.folder / "days" / DAY / "changes.parquet").stat().st_mtime_ns
    history(tmp_path, polls=2, start=NOON + 86_400)
    assert rows(kept, tmp_path / "x") == [NOON + d + 60 * i + 0.25 for d, n in ((0, 3), (86_400, 2)) for i in range(n)]
    assert (kept.folder / "days" / DAY / "changes.parquet").stat().st_mtime_ns == before


def test_a_day_that_is_finished_while_it_is_read_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = history(tmp_path)
    write_day = SystemHistory._write_day

    def finished_meanwhile(self: SystemHistory, day: str, folder: Path, tables: list[str]) -> None:
        monkeypatch.setattr(SystemHistory, "_write_day", write_day)
        kept.finish(DAY)
        write_day(self, day, folder, tables)

    monkeypatch.setattr(SystemHistory, "_write_day", finished_meanwhile)
    assert len(rows(kept, tmp_path / "x")) == 3


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.finish(DAY)
    changes = kept.folder / "days" / DAY / "changes.parquet"
    content = bytearray(changes.read_bytes())
    content[len(content) // 2] ^= 1
    changes.write_bytes(content)
    (kept.folder / "days" / DAY / "polls.parquet").unlink()
    history(tmp_path, start=NOON + 86_400)
    segment = kept.segment(day_of(NOON + 86_400))
    content = bytearray(segment.read_bytes())
    content[40] ^= 1
    segment.write_bytes(content)
    assert kept.damaged() == [
        f"days/{DAY}/changes.parquet",
        f"days/{DAY}/polls.parquet",
        f"open/{day_of(NOON + 86_400)}.segment",
    ]


def test_the_last_rows_of_a_day_are_those_of_a_segment(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.finish(DAY)
    assert kept.last_rows(DAY) == {"changes": [a_row(at=NOON + 120.25, num_bikes_available=2)]}


def test_a_folder_of_another_system_is_refused(tmp_path: Path) -> None:
    kept = history(tmp_path)
    with pytest.raises(InputError, match=r"keeps the history of https://example\.com/gbfs\.json, not of https://other"):
        kept.claim("https://other.example/gbfs.json")


@pytest.mark.parametrize("content", ["", "[]", '{"days": 3}', '{"days": {"2025-10-09": 3}}', "\ufffe"])
def test_a_manifest_that_cannot_be_read_is_refused(tmp_path: Path, content: str) -> None:
    kept = history(tmp_path)
    (kept.folder / "manifest.json").write_text(content)
    with pytest.raises(FileFormatError, match=r"manifest\.json"):
        kept.finished_days()


def test_histories_are_found_below_a_folder_and_by_their_own(tmp_path: Path) -> None:
    kept = history(tmp_path)
    (tmp_path / "other").mkdir()
    assert find_histories(tmp_path) == {"city": kept}
    assert find_histories(kept.folder) == {"city": kept}
    assert find_histories(tmp_path / "other") == {}


@pytest.mark.parametrize(
    "frame",
    [
        {"changes": 5},
        {"changes": {"a": 1}},
        {"changes": ["row"]},
        {"changes": [["a"]]},
        {"changes": [a_row(num_bikes_available="many")]},
        {"changes": [a_row(num_bikes_available=True)]},
        {"changes": [a_row(num_bikes_available=10**30)]},
        {"changes": [a_row(is_renting=1)]},
        {"changes": [a_row("half \ud800")]},
        {"changes": [a_row(at=1e300)]},
        {"changes": [a_row(at=float("nan"))]},
        {"polls": [a_poll(ttl="long")]},
        {"stations": [["a", NOON, "A", [], 10.0, 9, "{}"]]},
    ],
    ids=lambda frame: json.dumps(frame)[:60],
)
def test_rows_that_the_collector_does_not_write_are_refused(tmp_path: Path, frame: dict[str, Any]) -> None:
    made = history(tmp_path)
    with Segment(made.segment(DAY)) as segment:
        segment.append(frame)
    with pytest.raises(FileFormatError, match="that the collector does not write"):
        made.files("changes", tmp_path)
    with pytest.raises(FileFormatError, match="that the collector does not write"):
        made.finish(DAY)
    assert made.open_days() == [DAY]


def test_names_that_are_no_days_or_files_of_ours_are_refused_or_ignored(tmp_path: Path) -> None:
    made = history(tmp_path)
    (made.folder / "open" / "abcd-ef-gh.segment").write_text("not ours")
    (made.folder / "open" / "2021-13-45.segment").write_text("not ours")
    (made.folder / "open" / "2021-01-01.segment").mkdir()
    assert made.open_days() == [DAY]
    for days in ({"../../x": {}}, {"2021-02-30": {}}, {DAY: {"../changes.parquet": "0"}}):
        (made.folder / "manifest.json").write_text(json.dumps({"days": days}))
        with pytest.raises(FileFormatError, match="files of each day"):
            made.finished_days()


def test_a_manifest_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    made = history(tmp_path)
    (made.folder / "manifest.json").unlink()
    os.mkfifo(made.folder / "manifest.json")
    with pytest.raises(FileFormatError, match="expected a file"):
        made.manifest()
    assert find_histories(tmp_path) == {}


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    made = history(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (made.folder / ".x.partial").symlink_to(tmp_path / "mine")
    made.claim("https://example.com/gbfs.json")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"
    assert not (made.folder / ".x.partial").is_symlink()


@pytest.mark.parametrize("name", ["open", f"open/{DAY}.segment", "days/2026-01-01", "manifest.json"])
def test_a_link_in_a_history_is_refused_by_readers_and_by_the_collector(tmp_path: Path, name: str) -> None:
    made = history(tmp_path)
    (made.folder / "days").mkdir(exist_ok=True)
    path, other = made.folder / name, tmp_path / "other"
    path.rename(other) if path.exists() else other.mkdir()
    path.symlink_to(other)
    assert made.damaged() == [name]
    for use in (lambda: made.check_content("changes"), lambda: made.claim("https://example.com/gbfs.json")):
        with pytest.raises(FileFormatError, match=f"{name}: is a symbolic link"):
            use()
    assert other.exists()


def test_a_day_that_was_moved_away_is_no_damage(tmp_path: Path) -> None:
    made = history(tmp_path)
    made.finish(DAY)
    (made.folder / "days" / DAY).rename(tmp_path / "archived")
    assert made.damaged() == []


def finished_history(folder: Path) -> SystemHistory:
    """Two finished days and an open one."""
    for day in range(3):
        made = history(folder, start=NOON + 86_400 * day)
        if day < 2:
            made.finish(day_of(NOON + 86_400 * day))
    return made


@pytest.mark.parametrize("name", ["changes.parquet", "polls.parquet"])
def test_a_day_without_one_of_its_files_is_refused(tmp_path: Path, name: str) -> None:
    """Polls without their changes would mean that nothing moved all day."""
    made = finished_history(tmp_path)
    made.check_content("changes", "polls")
    (made.folder / "days" / DAY / name).unlink()
    with pytest.raises(FileFormatError, match=f"{DAY}/{name}: is missing"):
        made.check_content("changes", "polls")


def test_a_day_that_the_manifest_does_not_list_is_refused(tmp_path: Path) -> None:
    """As after a manifest was restored from an older copy: the day would be left out in silence."""
    made = finished_history(tmp_path)
    manifest = made.manifest()
    listed = manifest["days"].pop(DAY)
    (made.folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FileFormatError, match=rf"{DAY}/changes\.parquet: is not in manifest\.json"):
        made.check_content("changes")
    manifest["days"][DAY] = {**listed, "changes.parquet": "0"}
    del manifest["days"][DAY]["polls.parquet"]
    (made.folder / "manifest.json").write_text(json.dumps(manifest))
    assert made.damaged() == [f"days/{DAY}/changes.parquet", f"days/{DAY}/polls.parquet"]


def test_a_segment_with_the_name_of_another_day_is_refused(tmp_path: Path) -> None:
    """After the day before, its first rows would count as repetitions of that day's last ones."""
    made = finished_history(tmp_path)
    day, other = (day_of(NOON + 86_400 * n) for n in (2, 3))
    made.segment(day).rename(made.segment(other))
    assert made.damaged() == [f"open/{other}.segment"]
    with pytest.raises(FileFormatError, match=rf"{other}\.segment: has the name of one day"):
        made.check_content("changes")
