"""What is told while a run is under way, and of each stage afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FIRST_TIME", "Event", "Progress", "Stage"]

FIRST_TIME = "there is none yet"
"""Why a stage is made that was never made here before."""


@dataclass(frozen=True)
class Stage:
    """How a stage went.

    Attributes
    ----------
    name : str
        ``panel``, ``estimate`` or ``report``.
    path : pathlib.Path
        What it has left.
    reused : bool
        Whether it was taken over from an earlier run.
    why : str
        Why it was, or why it was not.
    seconds : float
        How long it took.
    """

    name: str
    path: Path
    reused: bool
    why: str
    seconds: float


@dataclass(frozen=True)
class Event:
    """Something to show while a run is under way.

    Attributes
    ----------
    stage : str
        ``panel``, ``estimate`` or ``report``.
    kind : str
        ``begin`` (`text` says why it is not reused), ``step`` (`text` is what it does now), ``zones`` (`done` of
        `zones`, and a sentence in `text` if there is one to say), ``note`` (`text` is worth keeping), ``end``.
    stage_result : Stage, optional
        At the end: how it went.
    """

    stage: str
    kind: str
    text: str = ""
    done: int = 0
    zones: int = 0
    stage_result: Stage | None = None


Progress = Callable[[Event], None]
