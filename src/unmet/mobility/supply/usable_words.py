"""Words and numbers about listed vehicles that nobody can rent, for the console and the page.

They come from the panel's summary. This module imports nothing heavy, so that ``unmet --help`` is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["supply_curve", "supply_facts", "supply_line"]

_AS_LISTED = ("listed", "unrelated")  # methods by which every listed vehicle counts


def supply_line(learnt: Mapping[str, Any] | None, taken: str = "pickups", listed: str = "vehicle") -> str:
    """Return what listed vehicles are worth in one line; `learnt` is ``usable_supply`` of the panel's summary.

    With ``returns`` and ``dock`` it is ``usable_docks``.
    """
    if learnt is None:
        return f"not learnt; every listed {listed} counts as usable"
    if learnt["method"] == "listed":
        return f"too few records to learn from; every listed {listed} counts as usable"
    if learnt["method"] == "unrelated":
        return f"{taken} do not depend on a {listed} being listed; every listed {listed} counts as usable"
    before, usable = (learnt[name] for name in ("curve_listed", "curve_usable"))
    worth = (
        f"{taken} over expected {before['1']:.2f} with one {listed} listed and {before['2']:.2f} with two; "
        f"{usable['1']:.2f} and {usable['2']:.2f} with the model"
    )
    if learnt["method"] == "between":
        return f"what could have happened between two looks; {_broken(learnt['parameters'], listed)}; {worth}"
    return worth


def _days(parameters: Mapping[str, float]) -> float:
    return 1 / (1440 * parameters["mended"])


def _broken(parameters: Mapping[str, float], listed: str) -> str:
    if not parameters:
        return f"no {listed} seems to be broken"
    return f"{parameters['breakage']:.1%} of those brought are broken, for {_days(parameters):.1f} days on average"


def supply_facts(learnt: Mapping[str, Any] | None) -> list[list[str]]:
    """Return what was learnt, as pairs of name and value; nothing if no model was learnt.

    Examples
    --------
    >>> supply_facts({"method": "curve", "parameters": {}, "log_likelihood_gain": 0.0})
    [['Method', 'average by number listed (too few records for more)']]
    """
    if learnt is None or learnt["method"] in _AS_LISTED:
        return []
    if learnt["method"] == "curve":
        return [["Method", "average by number listed (too few records for more)"]]
    p = learnt["parameters"]
    if learnt["method"] == "between":
        facts = [["Method", "what could have happened between two looks; pickups are not known one by one"]]
        if p:
            facts.append(
                ["Vehicles brought that are broken", f"{p['breakage']:.2%}, for {_days(p):.1f} days on average"]
            )
            facts.append(["Log-likelihood above that of rentable listings", f"{learnt['log_likelihood_gain']:,.0f}"])
        return facts
    days = 1440 * (p["repair"] + p["found"])
    return [
        ["Method", "hidden number of broken vehicles, from the whole record of each station"],
        ["Returned vehicles that are broken", f"{p['breakage']:.2%}, for {1 / days:.1f} days on average"],
        ["Broken vehicles that the feed shows as disabled in the end", f"{1440 * p['found'] / days:.0%}"],
        ["Vans that see to a station's broken vehicles", f"{p['visit']:.0%}"],
        ["Returned vehicles that cannot be rented at first", f"{p['brief']:.2%}, for {1 / p['recovery']:.0f} minutes"],
        ["Time in which a sound vehicle cannot be had", f"{p['fleeting']:.0%}"],
        ["Log-likelihood above that of rentable listings", f"{learnt['log_likelihood_gain']:,.0f}"],
    ]


def supply_curve(learnt: Mapping[str, Any] | None) -> list[tuple[int, float, float]]:
    """Return number listed, and pickups over those expected: if all can be rented, and by the model."""
    if learnt is None or learnt["method"] in _AS_LISTED:
        return []
    return [(int(n), float(value), float(learnt["curve_usable"][n])) for n, value in learnt["curve_listed"].items()]
