"""Settings from a file: ``unmet.toml``, read with every key and type checked, and the example of one."""

from __future__ import annotations

import difflib
import glob
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from unmet._exceptions import FileFormatError, InputError
from unmet.pipeline.settings import TABLES, RunSettings, about, settings_by_table

__all__ = ["CONFIG_NAME", "example_config", "make_settings", "read_config", "write_example"]

CONFIG_NAME = "unmet.toml"


def make_settings(config: str | os.PathLike[str] | None = None, /, **given: Any) -> RunSettings:
    """Settings from a file and from what is given beside it, which wins.

    Parameters
    ----------
    config : path, optional
        A file such as ``unmet init`` writes. Its paths are relative to itself, that of the results too.
    **given
        Fields of `RunSettings`; paths relative to the current folder.

    Examples
    --------
    >>> make_settings(trips=("trips.csv",), timezone="Europe/Oslo").zones
    'stations'
    """
    values = {} if config is None else read_config(config)
    beside = Path() if config is None else Path(config).parent
    chosen = {"out": beside / RunSettings.out} | values | given
    settings = RunSettings(**(chosen | {"out": Path(chosen["out"])}))
    if not (settings.trips or settings.status):
        raise InputError(
            "There is nothing to read: give trips, station status, or both, with --trips and --status or as trips and "
            f"status under [records] in {CONFIG_NAME} (unmet init writes an example)."
        )
    if not settings.timezone:
        raise InputError(
            "The time zone of the system is missing: give it with --timezone, such as --timezone America/New_York, "
            f"or as timezone under [records] in {CONFIG_NAME}."
        )
    return settings


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a file of settings; a key that is unknown or of the wrong type is an error.

    Returns
    -------
    dict
        Fields of `RunSettings`, with paths made relative to the file's folder.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        hint = " Write an example with: unmet init" if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{file}: the settings cannot be read: {error.strerror}.{hint}") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{file}: the settings cannot be read: this is not UTF-8 text ({error.reason})."
        ) from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f'{file}: is not TOML: {error}. Text needs quotes: every = "1h".') from error
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key in TABLES:
            if not isinstance(value, dict):
                raise InputError(f"{file}: {key}: expected a table, [{key}], got {_came(value)}.")
            for name, inner in value.items():
                values[name] = _setting(file, key, name, inner)
        else:
            values[key] = _setting(file, "", key, value)
    return values


def _setting(file: Path, table: str, name: str, value: Any) -> Any:
    """One value of the document, checked; paths made relative to the file."""
    where = f"{file}: [{table}] {name}" if table else f"{file}: {name}"
    if name not in settings_by_table(table):
        raise InputError(_unknown(file, table, name, value))
    expected, convert = _KINDS[about(name).kind]
    converted = convert(value, file.parent)
    if converted is None:
        raise InputError(f"{where}: expected {expected}, such as {about(name).example}; got {_came(value)}.")
    return converted


def _unknown(file: Path, table: str, name: str, value: Any) -> str:
    """Say what is known instead, the nearest first."""
    homes = {known: t for t in TABLES for known in settings_by_table(t)}
    if not table and isinstance(value, dict):
        there = [t for t in TABLES if t]
        return f"{file}: there is no table [{name}].{_nearest(name, there)} Tables are {_listed(there)}."
    said = f"{file}: there is no setting {name!r}" + (f" in [{table}]." if table else " at the top of the file.")
    if name in homes:
        home = homes[name]
        return said + (f" It belongs under [{home}]." if home else " It belongs at the top, before the first table.")
    near = difflib.get_close_matches(name, settings_by_table(table), 1) or difflib.get_close_matches(name, homes, 1)
    if near and homes[near[0]] != table:
        home = homes[near[0]]
        return said + f" Did you mean {near[0]!r}" + (f", under [{home}]?" if home else ", at the top of the file?")
    return said + _nearest(name, settings_by_table(table)) + f" Known here: {_listed(settings_by_table(table))}."


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _came(value: Any) -> str:
    """How a value is called in an error."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return f"{value} (a {_TYPE_NAMES.get(type(value), type(value).__name__)})"


_TYPE_NAMES = {int: "whole number", float: "number", date: "date", datetime: "date and time", time: "time of day"}


def _beside(item: str, folder: Path) -> str:
    """A path or glob, relative to a folder whose own name is no glob."""
    expanded = os.path.expanduser(item)
    if os.path.isabs(expanded):
        return expanded
    plain = folder / expanded
    return str(plain) if os.path.lexists(plain) else os.path.join(glob.escape(str(folder)), expanded)


def _path(value: Any, folder: Path) -> str | None:
    return str(folder / os.path.expanduser(value)) if isinstance(value, str) and value else None


def _paths(value: Any, folder: Path) -> tuple[str, ...] | None:
    items = value if isinstance(value, list) else [value]
    good = items and all(isinstance(item, str) and item for item in items)
    return tuple(_beside(item, folder) for item in items) if good else None


def _moment(value: Any, _: Path) -> str | None:
    # TOML has dates of its own: they need no quotes.
    return str(value) if isinstance(value, str | date) else None


def _zones(value: Any, folder: Path) -> str | None:
    """The files that zones are made from are relative to the settings, too."""
    if not isinstance(value, str):
        return None
    kind, _, rest = value.partition(":")
    points, _, radius = rest.rpartition(":")
    if kind == "superhubs" and points:
        return f"superhubs:{_path(points, folder)}:{radius}"
    return _path(value, folder) if value.lower().endswith((".geojson", ".json")) else value


def _names(value: Any, _: Path) -> dict[str, str] | None:
    good = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
    return dict(value) if good else None


def _columns(value: Any, _: Path) -> tuple[str, ...] | None:
    items = value if isinstance(value, list) else [value]
    good = items and all(isinstance(item, str) and item for item in items)
    return tuple(items) if good else None


def _is(*types: type) -> Callable[[Any, Path], Any]:
    # True is a whole number to Python, and not to anyone else.
    return lambda value, _: value if isinstance(value, types) and isinstance(value, bool) == (bool in types) else None


_KINDS: Mapping[str, tuple[str, Callable[[Any, Path], Any]]] = {
    "path": ("a path", _path),
    "paths": ("a path, or a list of paths", _paths),
    "text": ("text", _is(str)),
    "moment": ("a date or a local time", _moment),
    "zones": ("text", _zones),
    "whole": ("a whole number", _is(int)),
    "number": ("a number", _is(int, float)),
    "flag": ("true or false", _is(bool)),
    "columns": ("a column, or a list of columns", _columns),
    "names": ("a table of names", _names),
}


def example_config() -> str:
    """A file of settings with every setting explained: what most need set, the others as comments.

    Examples
    --------
    >>> print(example_config().splitlines()[0])
    # Settings of `unmet run`. Paths are relative to this file; flags of the command line win over it.
    """
    lines = [
        "# Settings of `unmet run`. Paths are relative to this file; flags of the command line win over it.",
        "# Lines that begin with # are not read. Take the # away to set a value: it shows the default, or an example.",
    ]
    for table, meaning in TABLES.items():
        lines += ["", f"# {meaning}", *([f"[{table}]"] if table else [])]
        for name in settings_by_table(table):
            known = about(name)
            lines += [f"# {known.help}", f"{'' if known.shown else '#'}{name} = {known.example}"]
    return "\n".join(lines) + "\n"


def write_example(path: str | os.PathLike[str] = CONFIG_NAME) -> Path:
    """Write the example; a file that is there is never overwritten."""
    file = Path(path)
    if file.is_dir():
        file = file / CONFIG_NAME
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(example_config())
    except FileExistsError as error:
        raise InputError(f"{file} is there already and stays as it is. Name another file, or remove it.") from error
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror}.") from error
    return file
