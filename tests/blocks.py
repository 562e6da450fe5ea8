"""Blocks of code in the documents: each names the file it came from, and has its text.

::

    <!-- from: docs/examples/own_data.py#fit -->
    ```python
    ...
    ```

So a page reads the same as a plain file and on the site, and what it shows is a file that the tests run. After a change
of such a file: ``python tests/blocks.py`` puts its text into every page that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")),
]
_FENCE = re.compile(
    r"(?:^<!-- from: (?P<source>\S+) -->\n)?^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```",
    flags=re.MULTILINE | re.DOTALL,
)
_MARKER = re.compile(r"^# \[(?:start|end):\w+\]\n", flags=re.MULTILINE)


class Block(NamedTuple):
    """A block of a page, and the file (and part of it) that it says it came from."""

    page: Path
    language: str
    body: str
    source: str | None


def blocks() -> Iterator[Block]:
    """Every block of every page."""
    for page in PAGES:
        for found in _FENCE.finditer(page.read_text(encoding="utf-8")):
            yield Block(page, found["language"], found["body"], found["source"])


def text_of(source: str) -> str:
    """The text of a file below the root, or of a part of it, between ``# [start:name]`` and ``# [end:name]``."""
    path, _, part = source.partition("#")
    text = (ROOT / path).read_text(encoding="utf-8")
    if part:
        text = re.search(rf"^# \[start:{part}\]\n(.*?)^# \[end:{part}\]$", text, flags=re.MULTILINE | re.DOTALL)[1]
    return _MARKER.sub("", text).strip("\n") + "\n"


def refreshed(page: str) -> str:
    """The text of a page, with what its blocks came from as it is now."""

    def renewed(found: re.Match[str]) -> str:
        if found["source"] is None:
            return found[0]
        begin, end = (place - found.start() for place in found.span("body"))
        return found[0][:begin] + text_of(found["source"]) + found[0][end:]

    return _FENCE.sub(renewed, page)


def refresh() -> None:
    """Put what the blocks came from into every page, and say which changed."""
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = refreshed(before)
        if after != before:
            print(f"{page.relative_to(ROOT)}: refreshed")
            page.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    refresh()
