"""The page over many cities: one row per city, with links to the reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from unmet._storage.writing import write_text

__all__ = ["CitySummary", "write_cities_page"]

_STYLE = """
:root { --page: #f4f6f8; --card: #fff; --ink: #17222d; --muted: #5c6b79; --line: #e1e6eb; --lost: #d55e00;
  --link: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --page: #0e151c; --card: #17212b; --ink: #e6edf3; --muted: #93a4b3;
  --line: #2a3846; --lost: #f2904b; --link: #56b4e9; } }
html { color-scheme: light dark; }
body { margin: 0 auto; max-width: 1400px; padding: 20px; background: var(--page); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 20px; } p { color: var(--muted); } a { color: var(--link); }
.table { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: 8px 12px; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td small { color: var(--muted); } td.lost { color: var(--lost); font-weight: 600; }
"""
_HEADS = ("City", "Period", "Zones", "Observed", "Lost (90% interval)", "Lost of wanted", "Walked on", "Worst zones")
_NUMBERS = {"Zones", "Observed", "Lost (90% interval)", "Lost of wanted", "Walked on"}


@dataclass(frozen=True)
class CitySummary:
    """The row of a city.

    Attributes
    ----------
    city : str
        Its name.
    report : str or None
        Path of its report, relative to the page; None if the city has no results.
    reason : str or None
        Why it has none.
    first, last : str
        First and last day of its records.
    zones, zones_failed : int
        Number of zones, and of those that could not be estimated.
    observed, wanted : float
        Trips that were recorded, and that were wanted.
    lost, lost_q05, lost_q95 : float
        Lost trips, with their 90% interval.
    walked_on : float
        Riders who were served at a neighbouring zone.
    unknown_share : float
        Share of the minutes of all zones of which nothing is known.
    worst : tuple of (str, float)
        Names and lost trips of the zones that lost most.
    findings : tuple of str
        Sentences of the checks that found something.
    """

    city: str
    report: str | None = None
    reason: str | None = None
    first: str = ""
    last: str = ""
    zones: int = 0
    zones_failed: int = 0
    observed: float = 0.0
    wanted: float = 0.0
    lost: float = 0.0
    lost_q05: float = 0.0
    lost_q95: float = 0.0
    walked_on: float = 0.0
    unknown_share: float = 0.0
    worst: tuple[tuple[str, float], ...] = ()
    findings: tuple[str, ...] = ()

    @property
    def lost_share(self) -> float:
        """Lost of wanted trips."""
        return self.lost / self.wanted if self.wanted else 0.0


def write_cities_page(path: Path, cities: Sequence[CitySummary], title: str = "All cities") -> None:
    """Write the page: cities in order of lost trips, those without results last.

    Parameters
    ----------
    path : Path
        The file to write.
    cities : sequence of CitySummary
        The rows.
    title : str
        Title of the page.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Path(folder, "fleet.html")
    ...     write_cities_page(page, [CitySummary("Oslo", "Oslo/report.html", lost=12.0, wanted=100.0)])
    ...     '<a href="Oslo/report.html">Oslo</a>' in page.read_text(encoding="utf-8")
    True
    """
    done = sorted((city for city in cities if city.reason is None), key=lambda city: (-city.lost, city.city))
    failed = [city for city in cities if city.reason is not None]
    heads = (*_HEADS, "Data quality")
    head = "".join(f'<th{_number(name)} scope="col">{escape(name)}</th>' for name in heads)
    body = "\n".join([*map(_row, done), *map(_failure, failed)])
    sums = [sum(getattr(city, name) for city in done) for name in ("lost", "wanted", "walked_on", "observed")]
    share = f", {sums[0] / sums[1]:.1%} of the {sums[1]:,.0f} wanted" if sums[1] else ""
    sentence = (
        f"{len(done)} of {len(cities)} cities are estimated. Together they served {sums[3]:,.0f} trips and lost "
        f"{sums[0]:,.0f}{share}; {sums[2]:,.0f} riders walked on to another zone."
    )
    write_text(
        path,
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style></head>\n'
        f'<body>\n<h1>{escape(title)}</h1>\n<p>{escape(sentence)}</p>\n<div class="table"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>\n</body>\n</html>\n",
        errors="replace",
    )


def _number(name: str) -> str:
    return ' class="number"' if name in _NUMBERS else ""


def _row(city: CitySummary) -> str:
    worst = "<br>".join(f"{escape(name)} <small>{lost:,.0f}</small>" for name, lost in city.worst)
    notes = [f"{city.unknown_share:.1%} of minutes unknown", *city.findings]
    if city.zones_failed:
        notes.insert(0, f"{city.zones_failed} zones could not be estimated")
    quality = "<br>".join(f"<small>{escape(note)}</small>" for note in notes)
    interval = f"<br><small>{city.lost_q05:,.0f} to {city.lost_q95:,.0f}</small>"
    return (
        f'<tr><th scope="row"><a href="{quote(city.report or "")}">{escape(city.city)}</a></th>'
        f"<td>{escape(city.first)}<br>{escape(city.last)}</td>"
        f'<td class="number">{city.zones:,}</td><td class="number">{city.observed:,.0f}</td>'
        f'<td class="number lost">{city.lost:,.0f}{interval}</td><td class="number">{city.lost_share:.1%}</td>'
        f'<td class="number">{city.walked_on:,.0f}</td><td>{worst}</td><td>{quality}</td></tr>'
    )


def _failure(city: CitySummary) -> str:
    return (
        f'<tr><th scope="row">{escape(city.city)}</th><td colspan="{len(_HEADS)}">'
        f"No results: {escape(city.reason or '')}</td></tr>"
    )
