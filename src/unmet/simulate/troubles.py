"""Troubles of a city or of its feed: the kinds, what each does, and when it happens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from unmet.simulate.demand import Stream, stream
from unmet.simulate.settings import Settings

__all__ = ["KINDS", "Kind", "Shown", "Trouble", "draw_troubles"]

_DAY = 86_400
_LONGEST_REOPENING = 7 * _DAY


class Shown(Enum):
    """Content of the feed for a station in trouble."""

    TRUTH = auto()
    NOTHING = auto()
    LOCKED = auto()  # every bike disabled, is_renting false
    NO_BIKES = auto()  # every bike disabled, but the station claims to rent
    ALL_DISABLED = auto()  # every bike and dock disabled, but the station claims to rent
    EMPTY = auto()  # no bike and every dock free, as in a stock-out


@dataclass(frozen=True)
class Kind:
    """Effect of a kind of trouble."""

    rents: bool  # riders can rent
    returns: bool  # riders can return
    shown: Shown


KINDS = {
    "closure": Kind(rents=False, returns=True, shown=Shown.LOCKED),
    "reopening": Kind(rents=False, returns=True, shown=Shown.NO_BIKES),
    "silent station": Kind(rents=False, returns=False, shown=Shown.NOTHING),
    "zero station": Kind(rents=False, returns=False, shown=Shown.ALL_DISABLED),
    "feed gap": Kind(rents=True, returns=True, shown=Shown.NOTHING),
    "not yet open": Kind(rents=False, returns=False, shown=Shown.NOTHING),
    "left": Kind(rents=False, returns=False, shown=Shown.NOTHING),
    "quiet closure": Kind(rents=False, returns=False, shown=Shown.EMPTY),
    "stuck terminal": Kind(rents=True, returns=True, shown=Shown.EMPTY),
    "valet": Kind(rents=True, returns=True, shown=Shown.TRUTH),  # of its docks; the bikes beside them are in no feed
    "move": Kind(rents=True, returns=True, shown=Shown.TRUTH),
}


@dataclass(frozen=True)
class Trouble:
    """Something out of order between two moments, of one station or (None) of all."""

    kind: str  # one of KINDS
    station: int | None
    start: int
    end: int

    @property
    def does(self) -> Kind:
        """Effect of this kind of trouble."""
        return KINDS[self.kind]


def draw_troubles(settings: Settings, horizon: int) -> list[Trouble]:
    """All troubles of a period of `horizon` seconds, in order of time."""
    system = _of_the_system(settings, horizon)
    closures = [trouble for trouble in system if trouble.kind == "closure"]
    troubles = [
        *system,
        *_dead_stations(settings, horizon),
        *_reopenings(settings, closures, horizon),
        *_of_stations(settings, horizon),
    ]
    return sorted(troubles, key=lambda t: (t.start, t.kind, -1 if t.station is None else t.station))


def _of_the_system(settings: Settings, horizon: int) -> list[Trouble]:
    """Closures and feed gaps."""
    troubles = []
    for kind, name, count, shortest, longest in (
        ("closure", Stream.CLOSURES, settings.closures, 8, 36),
        ("feed gap", Stream.FEED_GAPS, settings.feed_gaps, 2, 24),
    ):
        for i, (when, length) in enumerate(stream(settings, name).random((count, 2)).tolist()):
            # Each has a stretch of the period to itself (four days or more), so that no two meet.
            stretch = horizon / count
            start = int((i + 0.05 + 0.4 * when) * stretch)
            lasts = 3600 * (shortest + length * (longest - shortest))
            troubles.append(Trouble(kind, None, start, start + int(min(lasts, 0.5 * stretch))))
    return troubles


def _dead_stations(settings: Settings, horizon: int) -> list[Trouble]:
    """Stations that die for some days; they are silent and report zero in turn."""
    rng = stream(settings, Stream.DEAD_STATIONS)
    troubles = []
    for i, s in enumerate(rng.permutation(settings.stations)[: settings.dead_stations].tolist()):
        lasts = min(_DAY * rng.uniform(1, 7), horizon / 4)
        dies = rng.uniform(0.05, 0.7) * horizon
        troubles.append(Trouble(("silent station", "zero station")[i % 2], s, int(dies), int(dies + lasts)))
    return troubles


def _reopenings(settings: Settings, closures: list[Trouble], horizon: int) -> list[Trouble]:
    """After a closure each station comes back in its own time."""
    if not settings.reopening_hours:
        return []
    rng = stream(settings, Stream.REOPENINGS)
    troubles = []
    for closure in closures:
        hours = rng.exponential(settings.reopening_hours, settings.stations)
        for s, seconds in enumerate((3600 * hours).astype(int).tolist()):
            end = min(closure.end + 1 + min(seconds, _LONGEST_REOPENING), horizon)
            troubles.append(Trouble("reopening", s, closure.end, end))
    return troubles


def _of_stations(settings: Settings, horizon: int) -> list[Trouble]:
    """Troubles of single stations that last. No station has two of them.

    One shuffled list gives the stations to each kind in turn, so that each kind alone strikes the same stations.
    """
    rng = stream(settings, Stream.STATION_TROUBLES)
    victims = iter(rng.permutation(settings.stations).tolist())
    chances = iter(rng.random((settings.stations, 2)).tolist())
    troubles = []
    for kind, count in (
        ("not yet open", settings.late_stations),
        ("left", settings.leaving_stations),
        ("quiet closure", settings.quiet_closures),
        ("stuck terminal", settings.stuck_terminals),
        ("valet", settings.valet_stations),
        ("move", settings.moving_stations),
    ):
        for _ in range(count):
            when, length = next(chances)
            middle = int((0.3 + 0.4 * when) * horizon)
            early = int((0.1 + 0.3 * when) * horizon)
            weeks = int(min((14 + 21 * length) * _DAY, 0.4 * horizon))
            start, end = {
                "not yet open": (0, middle),
                "left": (middle, horizon),
                "quiet closure": (early, early + weeks),
                "stuck terminal": (early, horizon),
                "valet": (0, horizon),
                "move": (middle, middle),
            }[kind]
            troubles.append(Trouble(kind, next(victims), start, end))
    return troubles
