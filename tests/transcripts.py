"""Shell sessions of the documentation: run command by command, what is printed compared with what is shown.

A transcript is a file of ``$ command`` lines, each followed by what it prints (``...`` stands for anything). Record one
anew after a change, and look at the difference: ``python tests/transcripts.py docs/transcripts/operator.console``.
Pages that show it are refreshed (`blocks`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from blocks import ROOT, refresh

_WIDTH = "100"
_NUMBER = re.compile(r"[-+±(]*[\d,]*\.?\d+[%),:;]*")
_TIME = re.compile(r"(?<=Took )[\d.]+|(?<=processor time )[\d.]+")  # of a machine that may be busy
# Commands that CI runs itself, or that only set up: they are checked, not run, by the tests.
NOT_RUN = ("make", "pip", "python -m venv", "git")


@dataclass(frozen=True)
class Step:
    """A command of a transcript and what it is shown to print."""

    command: str
    shown: str

    @property
    def is_run(self) -> bool:
        """Whether the tests run it."""
        return not self.command.startswith(NOT_RUN)


# A command, continued where lines end with a backslash; then what it prints, up to the next one or a snippet marker.
_STEP = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n(?P<shown>(?:(?!\$ |# ).*\n)*)", flags=re.MULTILINE)


def steps(text: str) -> list[Step]:
    """The commands of a transcript."""
    return [
        Step(re.sub(r"\\\n\s*", "", found["command"]), found["shown"].strip("\n")) for found in _STEP.finditer(text)
    ]


def needs(text: str) -> list[str]:
    """Folders of the real data that a transcript needs."""
    return re.findall(r"^# needs: (\S+)$", text, flags=re.MULTILINE)


def environment(folder: Path) -> dict[str, str]:
    """As a user's, with `unmet` on the path."""
    tools = folder / ".tools"
    tools.mkdir(exist_ok=True)
    script = tools / "unmet"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c 'from unmet.cli import main; main()' \"$@\"\n")
    script.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONWARNINGS": "error",
        "OPENBLAS_NUM_THREADS": "1",
        "COLUMNS": _WIDTH,
        "NO_COLOR": "1",
    }


def run_step(step: Step, folder: Path) -> str:
    """Run one command in a folder; what it prints."""
    done = subprocess.run(
        ["sh", "-c", step.command],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"$ {step.command}\nended with exit code {done.returncode}:\n{done.stderr}"
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


def agrees(shown: str, printed: str) -> bool:
    """Whether a command printed what is shown of it: the same words, and numbers that differ by a tenth at most.

    Numbers depend a little on the machine. How long a command took and lines of tables do not count, ``...`` stands for
    anything.
    """
    rest = _words(printed)
    parts = [_words(part) for part in shown.split("...")]
    for number, part in enumerate(parts):
        places = range(len(rest) - len(part) + 1) if number else range(1)
        at = next((i for i in places if len(rest) >= i + len(part) and _alike(part, rest[i : i + len(part)])), None)
        if at is None:
            return False
        rest = rest[at + len(part) :]
    return not rest or shown.rstrip().endswith("...")


def _words(text: str) -> list[str]:
    return re.sub(r"[\u2500-\u257f|]", " ", _TIME.sub("…", text)).split()


def _alike(some: list[str], others: list[str]) -> bool:
    return all(_same(a, b) for a, b in zip(some, others, strict=True))


def _same(a: str, b: str) -> bool:
    if a == b:
        return True
    if not (_NUMBER.fullmatch(a) and _NUMBER.fullmatch(b)):
        return False
    x, y = (float(re.sub(r"[^\d.]", "", word)) for word in (a, b))
    return abs(x - y) <= max(0.1 * max(x, y), 3.0)


def record(path: Path) -> None:
    """Run a transcript and put in what its commands print now, where that is not what is shown."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(os.environ.get("UNMET_DATA", ROOT.parent / "shared" / "data"))
        (Path(folder) / "data").symlink_to(data.resolve())

        def renewed(found: re.Match[str]) -> str:
            (step,) = steps(found[0])
            if not step.is_run or agrees(step.shown, printed := run_step(step, Path(folder))):
                return found[0]
            print(f"{path.name}: $ {step.command}")
            return f"$ {found['command']}\n{printed}\n"

        text = _STEP.sub(renewed, path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        record(Path(name))
    refresh()
