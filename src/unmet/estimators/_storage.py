"""Files of fitted models: a zip of arrays and one JSON header with their digests and its own. No pickle, no code."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from unmet._exceptions import FileFormatError, InputError
from unmet._storage.writing import replacing

__all__ = ["finite_array", "finite_number", "names_in", "read_archive", "restoring", "write_archive"]

_FORMAT = "unmet-model"
_VERSION = 1
_OWN_DIGEST = "header_digest"  # of the header without this entry; files of earlier versions have none
_LARGEST = 1e300
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def write_archive(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a header and arrays to one file. The file appears complete or not at all.

    Parameters
    ----------
    path : path
        The file to write.
    header : dict
        JSON-able description.
    arrays : dict of arrays
        The arrays, by name.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"{path}: there is no folder {target.parent}. Create it first.")
    if target.is_dir():
        raise InputError(f"{path} is a folder. Give the name of a file.")
    blobs = {}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
        blobs[name] = buffer.getvalue()
    digests = {name: hashlib.sha256(blob).hexdigest() for name, blob in blobs.items()}
    full = {"format": _FORMAT, "version": _VERSION, "digests": digests, **header}
    plain = json.loads(json.dumps(full, default=_plain))
    with replacing(target) as aside, zipfile.ZipFile(aside, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", json.dumps({**plain, _OWN_DIGEST: _digest(plain)}))
        for name, blob in blobs.items():
            archive.writestr(f"{name}.npy", blob)


def _digest(header: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Convert NumPy's numbers to Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be written to a model file.")


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read header and arrays written by `write_archive`.

    Raises `FileFormatError` if the file is damaged, not a model, or of a newer version.
    """
    if not Path(path).is_file():
        raise FileFormatError(f"{path}: no such file. Give a model written by save().")
    try:
        with zipfile.ZipFile(path) as archive:
            _check_sizes(archive, os.path.getsize(path))
            header = json.loads(archive.read("header.json"))
            if not isinstance(header, dict) or header.get("format") != _FORMAT:
                raise FileFormatError(f"{path}: not a model written by save() (its header has another format).")
            if header.get("version") != _VERSION:
                raise FileFormatError(
                    f"{path}: written in version {header.get('version')} of the format; this unmet reads {_VERSION}. "
                    "Install the version of unmet that wrote it, or fit again."
                )
            if (own := header.pop(_OWN_DIGEST, None)) is not None and own != _digest(header):
                raise FileFormatError(f"{path}: damaged: its header does not match its digest. Fit again.")
            arrays = {}
            for name, digest in header["digests"].items():
                blob = archive.read(f"{name}.npy")
                if hashlib.sha256(blob).hexdigest() != digest:
                    raise FileFormatError(f"{path}: damaged: array {name!r} does not match its digest. Fit again.")
                arrays[name] = _read_array(blob, name)
            return header, arrays
    except FileFormatError:
        raise
    except (
        zipfile.BadZipFile,
        KeyError,
        ValueError,
        EOFError,
        OSError,
        AttributeError,
        NotImplementedError,
        RecursionError,
    ) as error:
        why = error.strerror if isinstance(error, OSError) else str(error) if isinstance(error, InputError) else None
        because = f" ({why})" if why else ""
        raise FileFormatError(f"{path}: not a model written by save(), or damaged{because}. Fit again.") from error


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse compressed entries, and entries that claim more bytes than the file has: `save` writes neither."""
    entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise InputError("its arrays are compressed")
    claimed = sum(entry.file_size for entry in entries)
    if claimed > size:
        raise InputError(f"its arrays claim {claimed:,} bytes; the file has {size:,}")


def _read_array(blob: bytes, name: str) -> np.ndarray:
    """Read an array whose header claims as many bytes as there are; memory is asked for only then."""
    stream = io.BytesIO(blob)
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise InputError(f"array {name!r} has version {version} of NumPy's format")
    shape, _, dtype = _HEADERS[version](stream)
    claimed, there = math.prod(shape) * dtype.itemsize, len(blob) - stream.tell()
    if dtype != np.float64 or claimed != there or min(shape, default=0) < 0:
        raise InputError(f"array {name!r} claims {dtype} of shape {shape}, {claimed:,} bytes; it has {there:,}")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


def finite_array(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Return an array of a file; raise `InputError` if some of its values are not finite."""
    if not np.isfinite(arrays[name]).all():
        raise InputError(f"{name}: expected finite numbers")
    return arrays[name]


def finite_number(value: Any, name: str) -> float:
    """Return a number of a header; raise `InputError` if it is not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        raise InputError(f"{name}: expected a finite number, got {value!r:.60}")
    return float(value)


def names_in(header: dict[str, Any], columns: int) -> np.ndarray | None:
    """Return the names of so many input columns in a header. None if they have none."""
    names = header["feature_names_in"]
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != columns or not all(isinstance(name, str) for name in names):
        raise InputError(f"feature_names_in: expected {columns} names, got {names!r:.60}")
    return np.array(names, dtype=object)


@contextmanager
def restoring(path: str | os.PathLike[str], header: dict[str, Any], name: str) -> Iterator[None]:
    """Raise `FileFormatError` for the file of another estimator, or if its header does not describe the estimator."""
    if header.get("estimator") != name:
        raise FileFormatError(f"{path}: contains a {header.get('estimator')}, not a {name}.")
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError) as error:
        reason = f"{path}: its header does not describe a {name}: {_reason(error)}. Fit again."
        raise FileFormatError(reason) from error


def _reason(error: Exception) -> str:
    """Say what is wrong with a header, without the words of Python and NumPy."""
    if isinstance(error, InputError):
        return str(error).rstrip(".")
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]!r:.60}"
    return "a part has another kind, size or range"
