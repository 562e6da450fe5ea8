"""Two drawings of boxes and arrows, as SVG: the way data takes, and which part may import which."""

from __future__ import annotations

from html import escape

__all__ = ["draw_imports", "draw_way"]

_COLOURS = {
    "light": {
        "ink": "#222222",
        "soft": "#5a5a5a",
        "data": "#d9efe6",
        "gp": "#d6e6f3",
        "join": "#fbe3c6",
        "out": "#efe1ee",
    },
    "dark": {
        "ink": "#e6e6e6",
        "soft": "#b0b0b0",
        "data": "#1d4a3a",
        "gp": "#1f3f5a",
        "join": "#5c4116",
        "out": "#4a3049",
    },
}
_HEIGHT = 46


class _Drawing:
    """A canvas of boxes with a title and a line of small print, joined by arrows."""

    def __init__(self, width: int, height: int, theme: str, title: str) -> None:
        self.colours = _COLOURS[theme]
        self.size = (width, height)
        self.title = title
        self.parts: list[str] = []

    def box(self, x: int, y: int, width: int, name: str, words: str, kind: str) -> None:
        ink, soft = self.colours["ink"], self.colours["soft"]
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{_HEIGHT}" rx="7" fill="{self.colours[kind]}" '
            f'stroke="{soft}" stroke-width="0.8"/>'
        )
        middle = x + width / 2
        lines = [(name, 13, ink, "bold"), (words, 10.5, soft, "normal")] if words else [(name, 13, ink, "bold")]
        for i, (text, size, colour, weight) in enumerate(lines):
            height = y + (19 if words else 28) + 16 * i
            self.parts.append(
                f'<text x="{middle}" y="{height}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
                f'text-anchor="middle">{escape(text)}</text>'
            )

    def label(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        style = f'font-size="11" fill="{self.colours["soft"]}" text-anchor="{anchor}"'
        self.parts.append(f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>')

    def arrow(self, *points: tuple[float, float]) -> None:
        path = " ".join(f"{'L' if i else 'M'}{x} {y}" for i, (x, y) in enumerate(points))
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{self.colours["ink"]}" stroke-width="1.3" marker-end="url(#tip)"/>'
        )

    def svg(self) -> str:
        width, height = self.size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="system-ui, sans-serif" role="img"><title>{escape(self.title)}</title>'
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{self.colours["ink"]}"/></marker></defs>'
        )
        return "\n".join([head, *self.parts, "</svg>"]) + "\n"


def draw_way(theme: str) -> str:
    """The way data takes, from an operator's files to a report."""
    d = _Drawing(820, 432, theme, "From records to a report")
    stations = [
        ("records", "read, checked, time-zoned", "data"),
        ("zones", "stations → hubs, polygons, H3", "data"),
        ("availability", "each minute: one state, a reason", "data"),
        ("panel", "zone × bin: observed, exposure", "data"),
        ("features", "calendar, holidays, weather", "data"),
    ]
    x, width = 30, 220
    d.label(x, 22, "trips · station status · stations · weather")
    for i, (name, words, kind) in enumerate(stations):
        d.box(x, 34 + 72 * i, width, name, words, kind)
        if i:
            d.arrow((x + width / 2, 34 + 72 * i - 26), (x + width / 2, 34 + 72 * i - 2))
    d.label(x, 415, "knows nothing of Gaussian processes")
    gp = [
        ("kernels · likelihoods", "covariances; tilted moments", "gp"),
        ("inference", "exact, EP, weight space", "gp"),
        ("evidence", "one optimiser loop", "gp"),
        ("estimators", "CensoredGP, TobitRegressor", "gp"),
    ]
    gx = 570
    for i, (name, words, kind) in enumerate(gp):
        d.box(gx, 34 + 72 * i, width, name, words, kind)
        if i:
            d.arrow((gx + width / 2, 34 + 72 * i - 26), (gx + width / 2, 34 + 72 * i - 2))
    d.label(gx + width, 415, "knows nothing of mobility", "end")
    d.box(300, 250, 220, "demand", "a fit per zone: the halves meet", "join")
    d.arrow((x + width, 345), (275, 345), (275, 273), (298, 273))
    d.arrow((gx, 273), (522, 273))
    d.box(300, 322, 105, "runs", "survive kills", "out")
    d.box(415, 322, 105, "report", "one page", "out")
    d.arrow((352, 298), (352, 320))
    d.arrow((405, 345), (413, 345))
    d.label(410, 388, "demand.parquet, totals, report.html", "middle")
    return d.svg()


def draw_imports(theme: str) -> str:
    """Which part may import which: only what stands to its left, or below."""
    d = _Drawing(820, 300, theme, "Imports point one way")
    d.box(
        20,
        214,
        780,
        "common ground",
        "_normal · _linalg · _parameters · _exceptions · _typing: imported by all, import nothing of ours",
        "out",
    )
    chain = [("kernels", 20), ("likelihoods", 20), ("inference", 165), ("evidence", 290), ("estimators", 415)]
    d.box(20, 30, 125, "kernels", "", "gp")
    d.box(20, 90, 125, "likelihoods", "", "gp")
    for name, x in chain[2:]:
        d.box(x, 60, 105, name, "", "gp")
    d.arrow((165, 75), (147, 53))
    d.arrow((165, 92), (147, 113))
    d.arrow((290, 83), (272, 83))
    d.arrow((415, 83), (397, 83))
    d.box(540, 60, 130, "mobility.demand", "", "join")
    d.arrow((540, 83), (522, 83))
    d.box(20, 152, 500, "records ← zones ← availability ← panel ← features", "no GP code", "data")
    d.arrow((605, 106), (605, 175), (522, 175))
    d.box(690, 60, 110, "report · cli", "pipeline between", "out")
    d.arrow((690, 83), (672, 83))
    d.label(
        20,
        284,
        "An arrow points at what is imported; kernels and likelihoods never import each other. A test enforces it.",
    )
    return d.svg()
