"""Progress events of a run and the results of its stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FIRST_TIME", "Event", "Progress", "Stage"]

FIRST_TIME = "there is no earlier result"
"""Reason for running a stage that has no result in this folder yet."""


@dataclass(frozen=True)
class Stage:
    """Result of a stage.

    Attributes
    ----------
    name : str
        ``panel``, ``estimate`` or ``report``.
    path : pathlib.Path
        Its output file or folder.
    reused : bool
        Whether an earlier result was used.
    why : str
        The reason why the stage was reused, or was not.
    seconds : float
        Wall-clock time.
    """

    name: str
    path: Path
    reused: bool
    why: str
    seconds: float


@dataclass(frozen=True)
class Event:
    """A progress event of a run.

    Attributes
    ----------
    stage : str
        ``panel``, ``estimate`` or ``report``.
    kind : str
        ``begin`` (`text`: why the stage is not reused), ``step`` (`text`: the current step), ``zones`` (`done` of
        `zones` zones; `text`: a note, or empty), ``note`` (`text`: a message to keep), ``end``.
    stage_result : Stage, optional
        The result, in the event ``end``.
    """

    stage: str
    kind: str
    text: str = ""
    done: int = 0
    zones: int = 0
    stage_result: Stage | None = None


Progress = Callable[[Event], None]
