"""Text files that carry their own checksum."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from unmet._storage.files import read_whole

__all__ = ["sealed", "unsealed"]


def sealed(text: str) -> str:
    """Add a checksum to a text, for a file that `unsealed` reads."""
    return json.dumps({"seal": _seal(text), "body": text})


def unsealed(path: Path) -> str:
    """Read a text that `sealed` has made; raise ValueError if it was changed since."""
    try:
        outer = json.loads(read_whole(path))
        seal, body = outer["seal"], outer["body"]
        if isinstance(body, str) and seal == _seal(body):
            return body
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: has no checksum ({error!r}).") from error
    raise ValueError(f"{path}: the checksum does not match the text.")


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
