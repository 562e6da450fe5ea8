"""Read ``unmet.toml``, checking every key and type, and write an example of it."""

from __future__ import annotations

import difflib
import glob
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.folders import check_regular
from unmet.pipeline.settings import TABLES, RunSettings, about, settings_by_table

__all__ = ["CONFIG_NAME", "example_config", "make_settings", "read_config", "read_toml", "write_example"]

CONFIG_NAME = "unmet.toml"
_LARGEST = 1 << 20
_MOST_DOTS = 100  # of a line, without those in quotes
_ADDRESS = re.compile(r"duckdb://(?P<file>[^?#]*)(?P<rest>.*)", re.DOTALL)  # a path would change // in a query
_QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'')


def make_settings(config: str | os.PathLike[str] | None = None, /, **given: Any) -> RunSettings:
    """Make settings from a file and from keyword arguments, which override the file.

    Parameters
    ----------
    config : path, optional
        A file like the one that ``unmet init`` writes. Its paths, ``out`` included, are relative to the file.
    **given
        Fields of `RunSettings`. Their paths are relative to the current folder.

    Examples
    --------
    >>> make_settings(trips=("trips.csv",), timezone="Europe/Oslo").zones
    'stations'
    """
    values = {} if config is None else read_config(config)
    folder = Path() if config is None else Path(config).parent
    chosen = {"out": folder / RunSettings.out} | values | given
    settings = RunSettings(**(chosen | {"out": Path(chosen["out"])}))
    if not (settings.trips or settings.status):
        raise InputError(
            "No records were given. Give trips, station status or both: with --trips and --status, or as trips and "
            f"status under [records] in {CONFIG_NAME} (unmet init writes an example)."
        )
    if not settings.timezone:
        raise InputError(
            "The time zone is missing. Give it with --timezone, such as --timezone America/New_York, "
            f"or as timezone under [records] in {CONFIG_NAME}."
        )
    return settings


def read_toml(file: Path) -> dict[str, Any]:
    """Read a small TOML file, within bounds of time and memory."""
    check_regular(file)
    try:
        with file.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        hint = " Write an example with: unmet init" if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{file}: cannot read the settings: {error.strerror}.{hint}") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{file}: cannot read the settings: the file is not UTF-8 text ({error.reason})."
        ) from None
    if len(content) > _LARGEST:
        raise FileFormatError(f"{file}: is larger than {_LARGEST:,} bytes; this is not a settings file.")
    # tomllib needs memory by the square of the dots in a key, and the text of a setting is in quotes.
    if any(line.partition("#")[0].count(".") > _MOST_DOTS for line in _QUOTED.sub("", text).splitlines()):
        raise FileFormatError(f"{file}: lists or tables are nested too deeply for a settings file.")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise FileFormatError(f"{file}: lists or tables are nested too deeply for a settings file.") from None
    except ValueError as error:  # also numbers of thousands of digits
        hint = "Each setting occurs once." if "overwrite" in str(error) else 'Text needs quotes: every = "1h".'
        raise FileFormatError(f"{file}: is not valid TOML: {error}. {hint}") from error


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a settings file. An unknown key or a value of the wrong type is an error.

    Returns
    -------
    dict
        Fields of `RunSettings`; paths are resolved against the file's folder.
    """
    file = Path(path)
    document = read_toml(file)
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key in TABLES:
            if not isinstance(value, dict):
                raise InputError(f"{file}: {key}: expected a table, [{key}], got {_described(value)}.")
            for name, inner in value.items():
                values[name] = _setting(file, key, name, inner)
        else:
            values[key] = _setting(file, "", key, value)
    return values


def _setting(file: Path, table: str, name: str, value: Any) -> Any:
    """Check and convert one value; paths are resolved against the file's folder."""
    where = f"{file}: [{table}] {name}" if table else f"{file}: {name}"
    if name not in settings_by_table(table):
        raise InputError(_unknown(file, table, name, value))
    expected, convert = _KINDS[about(name).kind]
    converted = convert(value, file.parent)
    if converted is None:
        raise InputError(f"{where}: expected {expected}, such as {about(name).example}; got {_described(value)}.")
    return converted


def _unknown(file: Path, table: str, name: str, value: Any) -> str:
    """Describe an unknown key and suggest the nearest known one."""
    homes = {known: t for t in TABLES for known in settings_by_table(t)}
    if not table and isinstance(value, dict):
        tables = [t for t in TABLES if t]
        return f"{file}: there is no table [{name}].{_nearest(name, tables)} Tables are {', '.join(tables)}."
    problem = f"{file}: there is no setting {name!r}" + (f" in [{table}]." if table else " at the top of the file.")
    if name in homes:
        home = homes[name]
        return problem + (f" It belongs under [{home}]." if home else " It belongs at the top, before the first table.")
    near = difflib.get_close_matches(name, settings_by_table(table), 1) or difflib.get_close_matches(name, homes, 1)
    if near and homes[near[0]] != table:
        home = homes[near[0]]
        return problem + f" Did you mean {near[0]!r}" + (f", under [{home}]?" if home else ", at the top of the file?")
    return problem + _nearest(name, settings_by_table(table)) + f" Known here: {', '.join(settings_by_table(table))}."


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _described(value: Any) -> str:
    """Describe a value for an error message."""
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


def _resolved(item: str, folder: Path) -> str:
    """Resolve a path, a glob or the address of a table against a folder, whose own name is escaped in a glob."""
    if (address := _ADDRESS.fullmatch(item)) is not None:
        return f"duckdb://{folder / os.path.expanduser(address['file'])}{address['rest']}"
    expanded = os.path.expanduser(item)
    if os.path.isabs(expanded):
        return expanded
    plain = folder / expanded
    return str(plain) if os.path.lexists(plain) else os.path.join(glob.escape(str(folder)), expanded)


def _path(value: Any, folder: Path) -> str | None:
    good = isinstance(value, str) and value and "\0" not in value
    return str(folder / os.path.expanduser(value)) if good else None


def _paths(value: Any, folder: Path) -> tuple[str, ...] | None:
    items = value if isinstance(value, list) else [value]
    good = items and all(isinstance(item, str) and item for item in items)
    return tuple(_resolved(item, folder) for item in items) if good else None


def _moment(value: Any, _: Path) -> str | None:
    # Dates are a type of TOML and need no quotes.
    return str(value) if isinstance(value, str | date) else None


def _text_or_file(value: Any, folder: Path) -> str | None:
    """Resolve files (points, polygons, a curve) against the settings' folder; other text stays."""
    if not isinstance(value, str):
        return None
    kind, _, rest = value.partition(":")
    points, _, radius = rest.rpartition(":")
    if kind == "superhubs" and points:
        return f"superhubs:{_path(points, folder)}:{radius}"
    return _path(value, folder) if value.lower().endswith((".geojson", ".json", ".csv")) else value


def _texts_or_files(value: Any, folder: Path) -> str | None:
    """Resolve the files and folders among words that are separated by commas."""
    if not isinstance(value, str):
        return None
    parts = [part.strip() for part in value.split(",")]
    return ",".join(str(_path(part, folder)) if _is_place(part, folder) else part for part in parts)


def _is_place(part: str, folder: Path) -> bool:
    return part.lower().endswith(".json") or (part != "" and (folder / os.path.expanduser(part)).is_dir())


def _names(value: Any, _: Path) -> dict[str, str] | None:
    good = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
    return dict(value) if good else None


def _columns(value: Any, _: Path) -> tuple[str, ...] | None:
    items = value if isinstance(value, list) else [value]
    good = items and all(isinstance(item, str) and item for item in items)
    return tuple(items) if good else None


def _is(*types: type) -> Callable[[Any, Path], Any]:
    # In Python, True is an int; in the settings it is not.
    return lambda value, _: value if isinstance(value, types) and isinstance(value, bool) == (bool in types) else None


_KINDS: Mapping[str, tuple[str, Callable[[Any, Path], Any]]] = {
    "path": ("a path", _path),
    "paths": ("a path, or a list of paths", _paths),
    "text": ("text", _is(str)),
    "moment": ("a date or a local time", _moment),
    "text or file": ("text", _text_or_file),
    "texts or files": ("text", _texts_or_files),
    "whole": ("a whole number", _is(int)),
    "number": ("a number", _is(int, float)),
    "flag": ("true or false", _is(bool)),
    "columns": ("a column, or a list of columns", _columns),
    "names": ("a table of names", _names),
}


def example_config() -> str:
    """Return the text of an example settings file. Settings that most users need are set, others are comments.

    Examples
    --------
    >>> print(example_config().splitlines()[0])
    # Settings of `unmet run`. Paths are relative to this file; command-line flags override it.
    """
    lines = [
        "# Settings of `unmet run`. Paths are relative to this file; command-line flags override it.",
        "# Remove the # to set a value. The commented values are defaults or examples.",
    ]
    for table, meaning in TABLES.items():
        lines += ["", f"# {meaning}", *([f"[{table}]"] if table else [])]
        for name in settings_by_table(table):
            known = about(name)
            lines += [f"# {known.help}", f"{'' if known.shown else '#'}{name} = {known.example}"]
    return "\n".join(lines) + "\n"


def write_example(path: str | os.PathLike[str] = CONFIG_NAME) -> Path:
    """Write the example file. An existing file is never overwritten."""
    file = Path(path)
    if file.is_dir():
        file = file / CONFIG_NAME
    made = False
    try:
        with file.open("x", encoding="utf-8") as stream:
            made = True
            stream.write(example_config())
    except FileExistsError as error:
        raise InputError(f"{file} already exists and was not changed. Give another file name, or remove it.") from error
    except OSError as error:
        if made:  # a part of the example would be in the way of the next one
            file.unlink(missing_ok=True)
        raise InputError(f"{file}: cannot be written: {error.strerror}.") from error
    return file
