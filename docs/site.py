"""What the site is made of besides its pages: the command reference, file formats, and formulas as MathML.

MkDocs calls the functions named ``on_…``. All of it is made from the code as it is at build time, so that none of it
can drift. Formulas become MathML, which browsers draw themselves: reading needs neither a script nor a network.
"""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put what is generated where a page asks for it, instead of the words for those who read it as a plain file.

    ``<!-- made: commands -->…<!-- /made -->`` becomes what that function gives, ``<!-- page: CHANGELOG.md -->…`` that
    file.
    """
    markdown = re.sub(r"<!-- page: (\S+) -->.*", lambda found: _file(found[1]), markdown, flags=re.DOTALL)
    return re.sub(r"<!-- made: (\w+) -->.*?<!-- /made -->", lambda found: MADE[found[1]](), markdown, flags=re.DOTALL)


def _file(name: str) -> str:
    """The text of a file of the repository, whose links begin at its top, as a page of the site, which is in docs."""
    return (Path(__file__).parent.parent / name).read_text(encoding="utf-8").replace("](docs/", "](")


def on_page_content(content: str, **_: Any) -> str:
    """Turn TeX into MathML."""
    return _FORMULA.sub(_as_mathml, content)


def _as_mathml(found: re.Match[str]) -> str:
    display = "block" if found["tag"] == "div" else "inline"
    return convert(html.unescape(found["tex"]), display=display)


def commands() -> str:
    """Every command with its arguments and options, from the app itself."""
    from typer.main import get_command

    from unmet.cli import app

    return "\n\n".join(_described(path, command) for path, command in _walk("unmet", get_command(app)))


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _walk(f"{path} {name}", child)


def _described(path: str, command: Any) -> str:
    anchor = path.replace(" ", "-")
    parts = [f"## `{path}` {{ #{anchor} }}", _flowing(command.help or "")]
    children = getattr(command, "commands", {})
    if children:
        rows = [f"| [`{path} {n}`](#{anchor}-{n}) | {_first(c.help)} |" for n, c in children.items()]
        parts.append("\n".join(["| command | what it does |", "|---|---|", *rows]))
    options = [row for p in command.params if (row := _option(p))]
    if options:
        parts.append("\n".join(["| option | default | what it does |", "|---|---|---|", *options]))
    if command.epilog:
        parts.append(_flowing(command.epilog))
    return "\n\n".join(part for part in parts if part)


def _flowing(text: str) -> str:
    """Help as Markdown: paragraphs flow, indented examples become blocks."""
    paragraphs = inspect.cleandoc(text).replace("\b", "").split("\n\n")
    return "\n\n".join(
        f"```text\n{inspect.cleandoc(p)}\n```" if p.startswith(" ") else _escaped(p.replace("\n", " "))
        for p in paragraphs
    )


def _first(text: str | None) -> str:
    return _escaped(re.split(r"(?<=[.])\s", inspect.cleandoc(text or "").replace("\n", " "))[0])


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*").strip()


def _option(param: Any) -> str:
    if getattr(param, "hidden", False) or param.name == "help":
        return ""
    names = ", ".join(f"`{name if name.startswith('-') else name.upper()}`" for name in param.opts)
    default = param.default() if callable(param.default) else param.default
    shown = (
        "required" if param.required else "" if default is None or default is False or default == [] else f"`{default}`"
    )
    return f"| {names} | {shown} | {_escaped(getattr(param, 'help', None) or '')} |"


def settings() -> str:
    """The example of ``unmet.toml``, as ``unmet init`` writes it."""
    from unmet.pipeline.config import example_config

    return f"```toml\n{example_config().rstrip()}\n```"


def headers() -> str:
    """The headers under which the fields of each kind of file are known."""
    from unmet.mobility.records.headers import SOURCES

    parts = []
    for source in SOURCES.values():
        needed = {name for need in source.required for name in need.split("|")}
        rows = [
            f"| `{name}`{' ●' if name in needed else ''} | {', '.join(f'`{v}`' for v in variants)} |"
            for name, variants in source.variants.items()
        ]
        parts.append("\n".join([f"**{source.name}**", "", "| field | known as |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def panel_columns() -> str:
    """Return the columns of a panel, from its schema."""
    from unmet.mobility.panel.schema import SCHEMA

    rows = [f"| `{column.name}` | {column.type.name} | {column.meaning} |" for column in SCHEMA]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows])


MADE: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "headers": headers,
    "panel_columns": panel_columns,
}
