"""The figures of the documentation, each light and dark: ``make figures`` writes them to ``docs/figures``.

Name some to draw only those: ``python docs/drawing/figures.py figure1 tails``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from way import draw_imports, draw_way

from unmet import CensoredGP
from unmet._normal import truncated_above
from unmet.kernels import SquaredExponential
from unmet.likelihoods import Gaussian, Observations
from unmet.metrics import rmse
from unmet.mobility.demand import LatentDemand
from unmet.mobility.panel import build_panel
from unmet.simulate import simulate_city

FOLDER = Path(__file__).parent.parent / "figures"
# Okabe & Ito's colours, told apart by the colour-blind; text and lines by theme.
ORANGE, GREEN, RED, GREY = "#E69F00", "#009E73", "#D55E00", "#888888"
BLUE = {"light": "#0072B2", "dark": "#56B4E9"}
INK = {"light": "#222222", "dark": "#e6e6e6"}
STATE_COLOURS = {"available": GREEN, "stockout": RED, "closed": GREY, "unknown": "#bbbbbb"}


def style(theme: str) -> dict[str, object]:
    ink = INK[theme]
    return {
        "svg.hashsalt": "unmet",
        "font.size": 10,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink),
    }


def figure1(theme: str) -> Figure:
    """The paper's Figure 1: three models of records whose peaks were cut off."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 10, 100)
    truth = 2 + np.sin(2 * x) / 2 + x / 10
    wanted = truth + rng.normal(scale=np.sqrt(0.1), size=x.size)
    censored = np.sin(2 * x) >= 0
    served = np.where(censored, wanted * (1 - rng.uniform(0.2, 0.3, size=x.size)), wanted)
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True, layout="constrained")
    titles = {"ignore": "stock-outs ignored (NCGP)", "drop": "stock-outs dropped (NCGP-A)", "model": "CensoredGP (CGP)"}
    for ax, (censoring, title) in zip(axes, titles.items(), strict=True):
        gp = CensoredGP(SquaredExponential(), censoring=censoring).fit(x[:, None], served, censored=censored)
        mean, sd = gp.predict(x[:, None], return_std=True)
        ax.fill_between(x, mean - 1.96 * sd, mean + 1.96 * sd, color=BLUE[theme], alpha=0.22, lw=0, label="95 % band")
        ax.plot(x, mean, color=BLUE[theme], lw=2, label="estimate")
        ax.plot(x, truth, color=INK[theme], lw=1.2, ls="--", label="true demand")
        ax.plot(x[~censored], served[~censored], "o", color=GREEN, ms=3, label="seen in full")
        ax.plot(x[censored], served[censored], "x", color=RED, ms=4, label="seen in part")
        ax.set_title(f"{title}\nRMSE to the truth {rmse(truth, mean):.2f}", fontsize=10)
    axes[0].set_ylabel("demand")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=9)
    return figure


@cache
def morning() -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Riders and supply of the station and day on which most were lost, in a simulated city."""
    city = simulate_city(stations=12, days=14, seed=4, fleet_share=0.25)
    truth = city.truth.assign(local=city.truth["wanted_at"].dt.tz_convert(city.settings.timezone).dt.tz_localize(None))
    lost = truth[truth["fate"] == "lost"]
    station, day = lost.groupby(["station_id", lost["local"].dt.normalize()]).size().idxmax()
    riders = truth[(truth["station_id"] == station) & (truth["local"].dt.normalize() == day)]
    index = city.stations.set_index("station_id").loc[station, "station_ix"]
    log = city.status[city.status["station_ix"] == index].copy()
    log["local"] = (
        pd.to_datetime(log["last_reported"], unit="s", utc=True)
        .dt.tz_convert(city.settings.timezone)
        .dt.tz_localize(None)
    )
    return riders, log[log["local"].dt.normalize() == day], f"{day:%A}"


def records_lie(theme: str) -> Figure:
    """One day of one station: bikes at the stand, riders who came, and what the records know of it."""
    riders, log, day = morning()
    hours = riders["local"].dt.hour
    served = riders["fate"].eq("served")
    figure, (top, below) = plt.subplots(
        2, 1, figsize=(9, 4.6), sharex=True, height_ratios=[1, 1.6], layout="constrained"
    )
    clock = (log["local"] - log["local"].dt.normalize()).dt.total_seconds() / 3600
    bikes = log["num_bikes_available"].to_numpy()
    top.step(clock, bikes, where="post", color=INK[theme], lw=1.2)
    for ax in (top, below):
        ends = np.append(clock.to_numpy()[1:], 24.0)
        for begin, end, count in zip(clock, ends, bikes, strict=True):
            if count == 0:
                ax.axvspan(begin, end, color=RED, alpha=0.18, lw=0)
    top.set_ylabel("bikes\nat the station")
    at = np.arange(24)
    seen = np.array([(served & (hours == h)).sum() for h in at])
    gone = np.array([(~served & (hours == h)).sum() for h in at])
    below.bar(at + 0.5, seen, width=0.85, color=GREEN, label="in the records")
    below.bar(
        at + 0.5, gone, width=0.85, bottom=seen, color=ORANGE, hatch="//", label="came, found nothing, left no trace"
    )
    below.set_ylabel("riders per hour")
    below.set_xlabel(f"hour of a {day}; shaded: nothing to rent")
    below.set_xlim(0, 24)
    below.set_xticks(range(0, 25, 3))
    below.legend(loc="upper left", fontsize=9)
    return figure


def states(theme: str) -> Figure:
    """What a day's status log says, and what state each quarter of an hour is in."""

    def at(text: str) -> pd.Timestamp:
        return pd.Timestamp(f"2024-05-01 {text}")

    rows = [("06:00", 5, 1), ("07:10", 2, 1), ("07:40", 0, 1), ("08:50", 3, 1), ("10:00", 6, 1), ("11:30", 0, 0)]
    rows += [("14:00", 6, 1), ("15:10", 4, 1), ("16:05", 1, 1), ("16:35", 0, 1), ("17:20", 4, 1), ("20:00", 5, 1)]
    status = pd.DataFrame(
        [("a", at(clock), n, renting, 10 - n) for clock, n, renting in rows],
        columns=["station_id", "last_reported", "num_bikes_available", "is_renting", "num_docks_available"],
    )
    panel = build_panel(status=status, timezone="America/New_York", every="15min").panel
    panel = panel[panel["start_local"] >= at("06:00")]
    hour = (panel["start_local"] - at("00:00")).dt.total_seconds() / 3600
    figure, (top, below) = plt.subplots(
        2, 1, figsize=(9, 3.8), sharex=True, height_ratios=[1, 1.2], layout="constrained"
    )
    clock = (status["last_reported"] - at("00:00")).dt.total_seconds() / 3600
    top.step(clock, status["num_bikes_available"], where="post", color=INK[theme])
    top.set_ylabel("vehicles\nin the log")
    bottom = np.zeros(len(panel))
    for state, colour in STATE_COLOURS.items():
        minutes = panel[f"{state}_minutes"].to_numpy(dtype=float)
        below.bar(hour, minutes, width=0.235, align="edge", bottom=bottom, color=colour, label=state)
        bottom += minutes
    below.set_ylabel("minutes of\neach quarter")
    below.set_xlabel("hour of the day; from 11:30 to 14:00 the station does not rent: closed, not out of stock")
    below.set_xlim(6, 20)
    figure.legend(*below.get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=9)
    return figure


def ep(theme: str) -> Figure:
    """One step of EP: the cavity, the likelihood of "at least y", their product, and the Gaussian of equal moments."""
    m, v, y, noise = 0.0, 1.0, 0.8, 0.15
    f = np.linspace(-3.2, 4.2, 600)
    cavity = np.exp(-0.5 * (f - m) ** 2 / v) / np.sqrt(2 * np.pi * v)
    bound = np.exp(truncated_above((y - f) / np.sqrt(noise)).log_mass)
    moments = Gaussian(noise).tilted(Observations(np.array([y]), np.array([np.inf])), np.array([m]), np.array([v]))
    z, mean, var = np.exp(moments.log_z[0]), m + v * moments.d1[0], v * moments.shrink[0]
    figure, ax = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
    ax.plot(f, cavity, color=GREY, lw=2, label="cavity N(m, v): what all other observations say")
    ax.plot(f, bound, color=RED, lw=1.6, ls="--", label=f"likelihood P(y* ≥ {y} | f)")
    ax.fill_between(f, cavity * bound / z, color=ORANGE, alpha=0.45, lw=0, label="tilted: cavity × likelihood / Ẑ")
    ax.plot(
        f,
        np.exp(-0.5 * (f - mean) ** 2 / var) / np.sqrt(2 * np.pi * var),
        color=BLUE[theme],
        lw=2,
        label="Gaussian of the same mean and variance",
    )
    ax.set_xlabel("latent value f")
    ax.set_yticks([])
    ax.set_ylim(0, 1.7)
    ax.legend(loc="upper left", fontsize=9)
    return figure


def tails(theme: str) -> Figure:
    """Relative error of the variance of a truncated normal: the textbook's formula and ours, against 60 digits."""
    import mpmath

    mpmath.mp.dps = 60
    t = np.logspace(0, 5, 41)

    def exact(x: float) -> object:
        x = mpmath.mpf(x)
        r = mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi) / (mpmath.erfc(x / mpmath.sqrt(2)) / 2)
        return 1 - r * (r - x)

    truth = [exact(float(x)) for x in t]
    ratio = truncated_above(t).mean
    textbook, ours = 1 - ratio * (ratio - t), truncated_above(t).var
    figure, ax = plt.subplots(figsize=(7.5, 3.2), layout="constrained")
    for values, colour, name in ((textbook, RED, "textbook: 1 − r (r − t)"), (ours, BLUE[theme], "truncated_above")):
        error = [max(float(abs(mpmath.mpf(float(a)) / b - 1)), 1e-17) for a, b in zip(values, truth, strict=True)]
        ax.loglog(t, error, "o-", ms=3, color=colour, label=name)
    ax.axhline(1.0, color=INK[theme], lw=0.8, ls=":")
    ax.set_xlabel("bound t, in standard deviations")
    ax.set_ylabel("relative error of the variance")
    ax.legend(fontsize=9)
    return figure


@cache
def totals() -> pd.DataFrame:
    """Demand of a simulated city by several models, over what was truly wanted."""
    city = simulate_city(stations=8, days=70, seed=11, fleet_share=0.25)
    made = build_panel(city.trips, city.status, city.stations, timezone=city.settings.timezone, every="1h")
    begin, end = made.panel["start"].min(), made.panel["start"].max() + pd.Timedelta(hours=1)
    wanted = city.truth[(city.truth["wanted_at"] >= begin) & (city.truth["wanted_at"] < end)]
    rows = {}
    for model in ("observed", "drop-censored", "weekly-mean", "exposure"):
        settings = LatentDemand(model, weather=city.weather, timezone=city.settings.timezone, holidays="US")
        result = settings.fit(made.panel, jobs=1)
        demand = result.totals[(result.totals["level"] == "system") & (result.totals["quantity"] == "demand")].iloc[0]
        rows[model] = {name: demand[name] / len(wanted) - 1 for name in ("mean", "q05", "q95")}
    return pd.DataFrame(rows).T


def models(theme: str) -> Figure:
    """Total demand of a simulated city, estimated from its records by four models, less the truth."""
    table = totals()
    figure, ax = plt.subplots(figsize=(7.5, 2.6), layout="constrained")
    at = np.arange(len(table))[::-1]
    colours = [RED, ORANGE, BLUE[theme], GREEN]
    ax.barh(at, 100 * table["mean"], color=colours, height=0.55)
    ax.errorbar(
        100 * table["mean"],
        at,
        xerr=100 * np.abs(table[["q05", "q95"]].to_numpy().T - table["mean"].to_numpy()),
        fmt="none",
        ecolor=INK[theme],
        capsize=4,
    )
    ax.axvline(0, color=INK[theme], lw=1)
    ax.set_yticks(at, list(table.index))
    for place, mean, low in zip(at, table["mean"], table["q05"], strict=True):
        ax.text(100 * min(low, mean, 0) - 0.15, place, f"{mean:+.1%}", va="center", ha="right", fontsize=9)
    ax.set_xlim(100 * min(table["q05"].min(), 0) * 1.25 - 0.5, max(1.0, 110 * table["q95"].max()))
    ax.set_xlabel("total demand, estimated less true, %")
    return figure


FIGURES: dict[str, Callable[[str], Figure | str]] = {
    "figure1": figure1,
    "records-lie": records_lie,
    "states": states,
    "models": models,
    "ep": ep,
    "tails": tails,
    "way": draw_way,
    "imports": draw_imports,
}


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in names or FIGURES:
        for theme in INK:
            path = FOLDER / f"{name}.{theme}.svg"
            with plt.rc_context(style(theme)):
                drawn = FIGURES[name](theme)
                if isinstance(drawn, str):
                    path.write_text(drawn, encoding="utf-8")
                else:
                    drawn.savefig(path, metadata={"Date": None})
                    plt.close(drawn)
        print(f"{name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
