from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path

import pytest

from unmet._exceptions import FileFormatError
from unmet.collect import segments
from unmet.collect.segments import Segment, check_frame, damaged_bytes, read_segment


def write(path: Path, *payloads: int) -> list[int]:
    """Append payloads; return the size of the file before the first and after each."""
    sizes = [0]
    with Segment(path) as segment:
        for payload in payloads:
            segment.append({"poll": payload, "text": "x" * payload})
            sizes.append(path.stat().st_size)
    return sizes


def polls(path: Path) -> list[int]:
    return [payload["poll"] for payload in read_segment(path)]


def test_a_segment_torn_at_any_byte_keeps_every_whole_frame_and_goes_on(tmp_path: Path) -> None:
    whole = tmp_path / "whole.segment"
    sizes = write(whole, 1, 2, 3)
    content = whole.read_bytes()
    torn = tmp_path / "torn.segment"
    for length in range(len(content) + 1):
        torn.write_bytes(content[:length])
        expected = [i for i in (1, 2, 3) if sizes[i] <= length]
        assert polls(torn) == expected
        assert damaged_bytes(torn) == 0
        write(torn, 9)
        assert polls(torn) == [*expected, 9]


def test_a_damaged_frame_is_passed_over_and_counted_wherever_the_damage_is(tmp_path: Path) -> None:
    path = tmp_path / "day.segment"
    sizes = write(path, 1, 2, 3)
    content = path.read_bytes()
    for position in range(sizes[1], sizes[2]):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        assert polls(path) == [1, 3]
        assert damaged_bytes(path) == sizes[2] - sizes[1]
        write(path, 4)
        assert polls(path) == [1, 3, 4]


def test_a_frame_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "day.segment"
    write(path, 1)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Segment(path) as segment:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space"):
                segment.append({"poll": 2})
        assert path.read_bytes() == before
        segment.append({"poll": 3})
    assert polls(path) == [1, 3]


def test_a_sound_frame_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "day.segment"
    with Segment(path) as segment:
        segment.append([1, 2])  # type: ignore[arg-type]
    with pytest.raises(FileFormatError, match=r"day\.segment: a frame is not a record of a poll"):
        polls(path)


def test_zeros_that_a_power_cut_leaves_are_no_frames(tmp_path: Path) -> None:
    path = tmp_path / "day.segment"
    write(path, 1)
    path.write_bytes(path.read_bytes() + b"UNM1" + bytes(4096))
    assert polls(path) == [1]
    write(path, 2)
    assert polls(path) == [1, 2]


def test_a_small_frame_of_very_many_values_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "day.segment"
    texts = {b'{"changes": [' + b"{}," * 5_000_000 + b"{}]}": False, b'{"text": "' + b"{,[" * 3_000_000 + b'"}': True}
    for text, sound in texts.items():
        packed = zlib.compress(text)
        path.write_bytes(struct.pack("<4sII", b"UNM1", len(packed), zlib.crc32(packed)) + packed)
        if sound:  # the signs are in a string
            assert len(list(read_segment(path))) == 1
            continue
        with pytest.raises(FileFormatError, match="more than 8,000,000 values"):
            list(read_segment(path))


def test_what_is_not_a_segment_is_neither_written_nor_waited_for(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("not ours")
    (tmp_path / "link.segment").symlink_to(precious)
    (tmp_path / "dangling.segment").symlink_to(tmp_path / "nothing")
    (tmp_path / "plain.segment").write_text("not ours")
    os.mkfifo(tmp_path / "pipe.segment")
    for name in ("link", "dangling", "plain", "pipe"):
        with pytest.raises(FileFormatError, match="Move it away"):
            Segment(tmp_path / f"{name}.segment")
    assert precious.read_text() == (tmp_path / "plain.segment").read_text() == "not ours"
    assert not (tmp_path / "nothing").exists()


def test_what_is_checked_can_be_read_and_what_is_larger_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_MOST_BYTES", 110_000)
    monkeypatch.setattr(segments, "MOST_VALUES", 100_100)
    sound = [{"documents": [["gbfs", 1.0, "\x7f" * 1_600]]}, {"changes": [["a", i] for i in range(30)]}]
    with Segment(tmp_path / "day.segment") as segment:
        for rows in sound:
            check_frame(rows)
            segment.append(rows)
    assert list(read_segment(tmp_path / "day.segment")) == sound
    with pytest.raises(FileFormatError, match=r"too much to be kept \(it has 10,"):
        check_frame({"documents": [["gbfs", 1.0, "\x7f" * 1_700]]})
    with pytest.raises(FileFormatError, match=r"too much to be kept \(it has more than 100 values"):
        check_frame({"changes": [["a", i] for i in range(60)]})
