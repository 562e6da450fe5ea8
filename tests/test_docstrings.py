"""Docstrings and comments name things that exist, and no docstring begins with a riddle."""

from __future__ import annotations

import ast
import importlib
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

import unmet

ROOT = Path(unmet.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
# Packages and modules of the numerical half.
SCIENCE = [
    path
    for path in SOURCES
    if path.relative_to(ROOT).parts[0] in ("estimators", "experiments", "inference", "kernels", "likelihoods")
    or path.parent == ROOT
]


def tokens(path: Path) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline))


@cache
def identifiers() -> set[str]:
    """Every identifier in the code of the package: what is defined, imported, passed or read."""
    return {token.string for path in SOURCES for token in tokens(path) if token.type == tokenize.NAME}


def names_in_backticks(path: Path) -> set[str]:
    text = "\n".join(t.string for t in tokens(path) if t.type in (tokenize.COMMENT, tokenize.STRING))
    return set(re.findall(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)", text))


def exists(name: str) -> bool:
    """Whether a dotted name below `unmet` can be imported, or all parts of another name occur in the code."""
    if not name.startswith("unmet."):
        return all(part in identifiers() or (ROOT / part).exists() for part in name.split("."))
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:i]))
        except ModuleNotFoundError:
            continue
        for part in parts[i:]:
            thing = getattr(thing, part, None)
        return thing is not None
    return False


def test_a_name_that_does_not_exist_is_found() -> None:
    assert exists("unmet.inference.dense.infer")
    assert exists("unmet.estimators")
    assert exists("Block.to_dict")
    assert not exists("unmet.inference.dense.infere")
    assert not exists("_as_tilted")


@pytest.mark.parametrize("path", SCIENCE, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_in_backticks_exist(path: Path) -> None:
    assert [name for name in sorted(names_in_backticks(path)) if not exists(name)] == []


@pytest.mark.parametrize("path", SCIENCE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_docstring_begins_with_what(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            doc = ast.get_docstring(node) or ""
            assert not doc.startswith("What"), f"{getattr(node, 'name', 'the module')}: {doc.splitlines()[0]}"
