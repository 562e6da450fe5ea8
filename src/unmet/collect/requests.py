"""One HTTP request of the collector: conditional, bounded in size and time, and never an exception for bad answers."""

from __future__ import annotations

import asyncio
import email.utils
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    import httpx

__all__ = ["Answer", "Secrets", "ask"]

_MOST_REDIRECTS = 5
_LONGEST_VALIDATOR = 1000  # servers refuse requests with headers of more than some kB
_GZIP = 31  # of zlib: gzip with its header and checksum
_MEMBER = b"\x1f"  # first byte of a member


@dataclass(frozen=True)
class Secrets:
    """Headers that authenticate, sent to one origin only: a feed's list may name other hosts.

    The values are kept out of the representation, so that no log contains them.
    """

    origin: tuple[str, str | None, int | None]
    headers: Mapping[str, str] = field(repr=False)

    @classmethod
    def for_address(cls, address: str, headers: Mapping[str, str]) -> Secrets:
        """Secrets for the origin of an address."""
        return cls(_origin(address), dict(headers))


@dataclass(frozen=True)
class Answer:
    """Outcome of a request.

    Attributes
    ----------
    status : int or None
        HTTP status; None if there was no answer.
    content : bytes or None
        The body of a 200, decompressed.
    etag, modified : str or None
        Validators for the next conditional request.
    retry_after : float or None
        Seconds that the server asks to wait.
    seconds : float
        Duration.
    error : str or None
        One sentence if the request failed.
    """

    status: int | None
    content: bytes | None = None
    etag: str | None = None
    modified: str | None = None
    retry_after: float | None = None
    seconds: float = 0.0
    error: str | None = None


async def ask(
    client: httpx.AsyncClient,
    address: str,
    *,
    etag: str | None = None,
    modified: str | None = None,
    timeout: float,
    most_bytes: int,
    secrets: Secrets | None = None,
) -> Answer:
    """Request an address within `timeout` seconds in all; conditionally where validators are given.

    Redirects are followed up to five times, to http and https addresses only. Answers larger than `most_bytes` after
    decompression are refused while they arrive.
    """
    import httpx

    headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
    headers |= {name: value for name, value in (("If-None-Match", etag), ("If-Modified-Since", modified)) if value}
    began = time.monotonic()
    try:
        async with asyncio.timeout(timeout):
            return await _follow(client, address, headers, most_bytes, secrets, began)
    except (TimeoutError, httpx.TimeoutException):
        error = "no answer in time"
    except Exception as failure:  # whatever a stranger's address or answer causes must not end the collector
        error = f"{type(failure).__name__}: {str(failure)[:200]}"
    return Answer(None, seconds=_since(began), error=error)


async def _follow(
    client: httpx.AsyncClient,
    address: str,
    headers: Mapping[str, str],
    most_bytes: int,
    secrets: Secrets | None,
    began: float,
) -> Answer:
    """Follow redirects to the answer. Secrets go to their own origin only."""
    for _ in range(_MOST_REDIRECTS + 1):
        if urlsplit(address).scheme not in ("http", "https"):
            return Answer(None, seconds=_since(began), error="the address is not http or https")
        own = secrets.headers if secrets is not None and secrets.origin == _origin(address) else {}
        async with client.stream("GET", address, headers={**headers, **own}) as response:
            if not (response.is_redirect and "location" in response.headers):
                return await _read(response, most_bytes, began)
            status, address = response.status_code, urljoin(address, response.headers["location"])
    return Answer(status, seconds=_since(began), error=f"more than {_MOST_REDIRECTS} redirects")


async def _read(response: httpx.Response, most_bytes: int, began: float) -> Answer:
    status, waits = response.status_code, _retry_after(response.headers.get("retry-after"))
    etag, modified = _validator(response, "etag"), _validator(response, "last-modified")
    if status == 304 and {"if-none-match", "if-modified-since"} & set(response.request.headers):
        return Answer(status, etag=etag, modified=modified, retry_after=waits, seconds=_since(began))
    if status != 200:
        return Answer(status, retry_after=waits, seconds=_since(began), error=f"HTTP {status}")
    content, error = await _body(response, most_bytes)
    return Answer(status, content, etag=etag, modified=modified, retry_after=waits, seconds=_since(began), error=error)


def _validator(response: httpx.Response, name: str) -> str | None:
    """Give a validator that can be sent back; one that cannot be a header would fail every later request."""
    value = response.headers.get(name, "")
    return value if 0 < len(value) <= _LONGEST_VALIDATOR and value.isascii() and value.isprintable() else None


async def _body(response: httpx.Response, most_bytes: int) -> tuple[bytes | None, str | None]:
    """Read a body in bounded memory, or say what is wrong with it.

    Only gzip was asked for. It is unpacked here, because httpx unpacks each part as far as it goes: a small part may
    become gigabytes.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", ""):
        return None, f"the answer is packed as {encoding[:20]!r}; gzip was asked for"
    unpacker = _Unpacker() if "gzip" in encoding else None
    parts, size, received = [], 0, 0
    async for part in response.aiter_raw():
        received += len(part)  # memory also holds what follows the end of gzip
        try:
            plain = part if unpacker is None else unpacker.unpack(part, most_bytes - size + 1)
        except zlib.error:
            return None, "the answer is not gzip, though it says so"
        size += len(plain)
        if max(size, received) > most_bytes:
            return None, f"the answer is larger than {most_bytes:,} bytes"
        parts.append(plain)
    if unpacker is not None and not unpacker.complete:
        return None, "the answer is cut off"
    return b"".join(parts), None


class _Unpacker:
    """Unpack gzip that comes in parts: one member or several (RFC 1952, 2.2). What follows the last one is left out."""

    def __init__(self) -> None:
        self._member, self._over = zlib.decompressobj(_GZIP), False

    @property
    def complete(self) -> bool:
        return self._member.eof

    def unpack(self, part: bytes, most_bytes: int) -> bytes:
        """Return the next bytes, at most `most_bytes`; the caller gives up if there are as many."""
        plain = b""
        while part and not self._over and len(plain) < most_bytes:
            if self._member.eof:
                self._over = not part.startswith(_MEMBER)
                if self._over:
                    break
                self._member = zlib.decompressobj(_GZIP)
            plain += self._member.decompress(part, most_bytes - len(plain))
            part = self._member.unused_data
        return plain


def _since(began: float) -> float:
    return time.monotonic() - began


def _retry_after(value: str | None) -> float | None:
    """Seconds to wait, from a number of seconds or an HTTP date."""
    if value is None:
        return None
    if value.strip().isascii() and value.strip().isdigit():
        return float(value)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, moment.timestamp() - time.time())


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port
