from __future__ import annotations

from pathlib import Path

from feed_server import NOON
from test_history import a_poll

from unmet.collect import SystemHistory
from unmet.collect.history import day_of
from unmet.collect.segments import Segment
from unmet.collect.summary import summarise


def history(folder: Path, *polls: tuple[float, str | None, float | None]) -> SystemHistory:
    """Polls of minutes after noon: minute, error, minute of last_updated."""
    made = SystemHistory(folder / "city")
    made.claim("https://example.com/gbfs.json")
    for minute, error, updated in polls:
        at = NOON + 60 * minute
        with Segment(made.segment(day_of(at))) as segment:
            last = None if updated is None else NOON + 60 * updated
            segment.append({"polls": [a_poll(at, error=error, last_updated=last, rows=None if error else 7)]})
    return made


def test_gaps_uptime_and_staleness_are_those_of_the_good_polls(tmp_path: Path) -> None:
    good = [(m, None, min(m, 30)) for m in [*range(20), *range(50, 60)]]
    failed = [(m, "HTTP 500", 19) for m in range(20, 25)]
    kept = history(tmp_path, *sorted(good + failed))  # type: ignore[type-var]
    found = summarise(kept, NOON + 60 * 60)
    assert (found.days, found.polls, found.failed, found.rows) == (1, 35, 5, 7)
    assert (found.gaps, found.longest_gap) == (1, 31 * 60)
    assert found.uptime == 1 - 31 / 60
    assert found.stale == 600  # minute 50 had it first
    assert found.error is None
    later = summarise(kept, NOON + 60 * 120)
    assert (later.gaps, later.longest_gap) == (2, 61 * 60)


def test_days_are_counted_and_the_last_error_is_shown(tmp_path: Path) -> None:
    kept = history(tmp_path, (0, None, None), (1440, None, None), (1441, "HTTP 500", None))
    kept.finish(day_of(NOON))
    found = summarise(kept, NOON + 60 * 1442)
    assert (found.days, found.polls, found.error, found.stale) == (2, 3, "HTTP 500", None)
    assert found.size == sum(path.stat().st_size for path in kept.folder.rglob("*") if path.is_file())


def test_a_system_whose_feeds_are_not_known_has_the_reason(tmp_path: Path) -> None:
    for name, error in (("refused", "HTTP 401"), ("of alerts only", None)):
        kept = SystemHistory(tmp_path / name)
        kept.claim("https://example.com/gbfs.json")
        with Segment(kept.segment(day_of(NOON))) as segment:
            segment.append({"polls": [["gbfs", *a_poll(NOON, error=error)[1:]]]})
        found = summarise(kept, NOON + 60)
        assert (found.polls, found.last) == (0, None)
        assert found.error == (error or "it lists neither station_status nor a feed of vehicles")


def test_a_history_without_a_good_poll_has_no_uptime(tmp_path: Path) -> None:
    assert summarise(history(tmp_path / "a"), NOON).uptime is None
    found = summarise(history(tmp_path / "b", (0, "no answer in time", None)), NOON + 60)
    assert (found.polls, found.failed, found.uptime, found.error) == (1, 1, None, "no answer in time")
