"""Two drawings of boxes and arrows, as SVG: the path of the data, and which part may import which."""

from __future__ import annotations

from html import escape

__all__ = ["ARROWS", "BOXES", "GROUND", "draw_imports", "draw_way"]

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

    def box(self, x: int, y: int, width: int, name: str, words: str, kind: str, height: int = _HEIGHT) -> None:
        ink, soft = self.colours["ink"], self.colours["soft"]
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7" fill="{self.colours[kind]}" '
            f'stroke="{soft}" stroke-width="0.8"/>'
        )
        middle = x + width / 2
        lines = [(name, 13, ink, "bold"), (words, 10.5, soft, "normal")] if words else [(name, 13, ink, "bold")]
        for i, (text, size, colour, weight) in enumerate(lines):
            baseline = y + (19 if words else height / 2 + 5) + 16 * i
            self.parts.append(
                f'<text x="{middle}" y="{baseline}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
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
    """The path of the data, from an operator's files to a report."""
    d = _Drawing(820, 432, theme, "From records to a report")
    stations = [
        ("records", "read, checked, time-zoned", "data"),
        ("zones", "stations → hubs, polygons, H3", "data"),
        ("supply", "each minute: one state, a reason", "data"),
        ("panel", "zone × bin: observed, exposure", "data"),
        ("features", "calendar, holidays, weather", "data"),
    ]
    x, width = 30, 220
    d.label(x, 22, "trips · station status · stations · weather")
    for i, (name, words, kind) in enumerate(stations):
        d.box(x, 34 + 72 * i, width, name, words, kind)
        if i:
            d.arrow((x + width / 2, 34 + 72 * i - 26), (x + width / 2, 34 + 72 * i - 2))
    d.label(x, 415, "imports no Gaussian processes")
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
    d.label(gx + width, 415, "imports nothing of mobility", "end")
    d.box(300, 250, 220, "models", "one estimate per zone", "join")
    d.arrow((x + width, 345), (275, 345), (275, 273), (298, 273))
    d.arrow((gx, 273), (522, 273))
    d.box(300, 322, 105, "runs", "resumable", "out")
    d.box(415, 322, 105, "report", "one page", "out")
    d.arrow((352, 298), (352, 320))
    d.arrow((405, 345), (413, 345))
    d.label(410, 388, "demand.parquet, totals, report.html", "middle")
    return d.svg()


# Centre, row and kind of each box. A box may import the boxes that its arrows lead to, directly or by way of others.
BOXES = {
    "cli": (410, 0, "out"),
    "experiments": (130, 1, "gp"),
    "pipeline": (430, 1, "out"),
    "backtest": (730, 1, "join"),
    "report": (370, 2, "out"),
    "demand": (510, 2, "join"),
    "simulate": (740, 2, "data"),
    "runs": (470, 3, "join"),
    "planning": (760, 3, "out"),
    "plots": (60, 4, "gp"),
    "models": (330, 4, "join"),
    "features": (620, 4, "data"),
    "estimators": (200, 5, "gp"),
    "panel": (570, 5, "data"),
    "evidence": (120, 6, "gp"),
    "zones": (500, 6, "data"),
    "supply": (650, 6, "data"),
    "inference": (270, 6, "gp"),
    "records": (500, 7, "data"),
    "kernels": (200, 7, "gp"),
    "likelihoods": (330, 7, "gp"),
    "clock": (570, 8, "data"),
    "collect": (430, 8, "data"),
    "decisions": (760, 5, "out"),
}
ARROWS = {
    "cli": ("experiments", "pipeline", "backtest"),
    "pipeline": ("report", "demand", "simulate"),
    "experiments": ("estimators", "panel"),
    "backtest": ("runs",),
    "report": ("runs", "planning"),
    "demand": ("runs", "features"),
    "runs": ("models",),
    "planning": ("decisions", "zones"),
    "models": ("estimators", "panel"),
    "plots": ("estimators",),
    "estimators": ("evidence", "inference"),
    "inference": ("kernels", "likelihoods"),
    "features": ("panel",),
    "panel": ("zones", "supply"),
    "zones": ("records",),
    "supply": ("clock",),
    "records": ("clock", "collect"),
}
"""Imports between parts, without those that others imply; `tests/test_figures.py` compares them with the code."""
GROUND = (
    ("_storage", "execution", "spreading", "engines", "censoring", "metrics"),
    ("_exceptions", "_linalg", "_memory", "_normal", "_numbers", "_parameters", "_signals", "_stamp", "_typing"),
)
"""Parts that import only each other and those in the row below them."""
_ROW, _BOX = 52, (104, 30)


def draw_imports(theme: str) -> str:
    """Which part may import which: arrows lead down, to what is imported."""
    d = _Drawing(820, 620, theme, "Imports point one way")
    width, height = _BOX
    for name, (x, row, kind) in BOXES.items():
        d.box(x - width // 2, 20 + _ROW * row, width, name, "", kind, height)
    for name, imported in ARROWS.items():
        x, row, _ = BOXES[name]
        for other in imported:
            end, below, _ = BOXES[other]
            lean = max(-1.0, min(1.0, (end - x) / 250)) * (width / 2 - 12)
            d.arrow((x + lean, 20 + _ROW * row + height), (end - lean, 20 + _ROW * below - 2))
    words = ("used where needed", "used everywhere")
    for number, (names, use) in enumerate(zip(GROUND, words, strict=True)):
        d.box(20, 498 + _ROW * number, 780, " · ".join(names), use, "out")
    d.label(20, 612, "Left: Gaussian processes. Right: records and panels. They meet in models.")
    return d.svg()
