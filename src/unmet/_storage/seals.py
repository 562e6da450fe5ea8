"""Text files that carry their own checksum."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

__all__ = ["sealed", "unsealed"]


def sealed(text: str) -> str:
    """A text with its checksum, to be written to a file; `unsealed` reads it back."""
    return json.dumps({"seal": _seal(text), "body": text})


def unsealed(path: Path) -> str:
    """The text of a file that `sealed` has made; raises ValueError where it is another now."""
    try:
        outer = json.loads(path.read_bytes())
        seal, body = outer["seal"], outer["body"]
        if isinstance(body, str) and seal == _seal(body):
            return body
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: is not a sealed text ({error!r}).") from error
    raise ValueError(f"{path}: the seal is broken.")


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
