from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
import zlib
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest
from feed_server import FeedServer, Reply, Request, packed, status

from unmet.collect.requests import Answer, Secrets, ask


@pytest.fixture
def server() -> Iterator[FeedServer]:
    with FeedServer() as serving:
        yield serving


def get(address: str, *, verify: Any = True, timeout: float = 20.0, most_bytes: int = 100_000, **more: Any) -> Answer:
    async def once() -> Answer:
        async with httpx.AsyncClient(verify=verify) as client:
            return await ask(client, address, timeout=timeout, most_bytes=most_bytes, **more)

    return asyncio.run(once())


def test_a_document_comes_with_its_validators_gzipped_or_not(server: FeedServer) -> None:
    reply = status({"a": 3}, ETag='"1"', **{"Last-Modified": "yesterday"})
    server.routes |= {"/plain": reply, "/packed": packed(reply)}
    for path in ("/plain", "/packed"):
        answer = get(server.url + path)
        assert (answer.status, answer.content, answer.error) == (200, reply.body, None)
        assert (answer.etag, answer.modified) == ('"1"', "yesterday")


def test_a_304_is_good_if_it_was_asked_for_and_wrong_if_not(server: FeedServer) -> None:
    server.routes["/"] = Reply(304)
    answer = get(f"{server.url}/", etag='"1"', modified="yesterday")
    assert (answer.status, answer.content, answer.error) == (304, None, None)
    sent = server.requests[-1].headers
    assert (sent["If-None-Match"], sent["If-Modified-Since"]) == ('"1"', "yesterday")
    assert get(f"{server.url}/").error == "HTTP 304"


@pytest.mark.parametrize("header", ["ETag", "Last-Modified"])
def test_a_validator_that_cannot_be_sent_back_is_not_kept(server: FeedServer, header: str) -> None:
    server.routes["/"] = status({"a": 3}, **{header: '"caf\xe9"'})
    answer = get(f"{server.url}/")
    assert (answer.error, answer.etag, answer.modified) == (None, None, None)


@pytest.mark.parametrize("code", [401, 404, 429, 500, 503])
def test_other_codes_are_errors_and_retry_after_is_read(server: FeedServer, code: int) -> None:
    server.routes["/"] = Reply(code, b"<html>", {"Retry-After": "120"})
    answer = get(f"{server.url}/")
    assert (answer.status, answer.content, answer.error, answer.retry_after) == (code, None, f"HTTP {code}", 120.0)


@pytest.mark.parametrize(("value", "seconds"), [("soon", None), ("-5", None), ("²", None), ("", None)])
def test_a_retry_after_that_is_none_is_ignored(server: FeedServer, value: str, seconds: float | None) -> None:
    server.routes["/"] = Reply(429, b"", {"Retry-After": value})
    assert get(f"{server.url}/").retry_after == seconds


def test_a_retry_after_may_be_a_date(server: FeedServer) -> None:
    server.routes["/"] = lambda _: Reply(429, b"", {"Retry-After": formatdate(usegmt=True)})
    assert get(f"{server.url}/").retry_after == 0.0
    server.routes["/"] = Reply(429, b"", {"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"})
    assert (get(f"{server.url}/").retry_after or 0) > 1e9


def test_a_slow_server_is_given_up(server: FeedServer) -> None:
    server.routes["/"] = Reply(stall=True)
    answer = get(f"{server.url}/", timeout=0.1)
    assert (answer.status, answer.error) == (None, "no answer in time")


def test_a_truncated_answer_is_an_error_packed_or_not(server: FeedServer) -> None:
    reply = status({"a": 3})
    server.routes["/"] = Reply(200, reply.body, cut=20)
    assert "RemoteProtocolError" in (get(f"{server.url}/").error or "")
    whole = packed(reply)
    server.routes["/"] = Reply(200, whole.body[:-9], whole.headers)  # the length is right, the content is not
    assert get(f"{server.url}/").error == "the answer is cut off"
    server.routes["/"] = Reply(200, b"no gzip at all", whole.headers)
    assert get(f"{server.url}/").error == "the answer is not gzip, though it says so"


def test_huge_answers_and_gzip_bombs_are_refused(server: FeedServer) -> None:
    server.routes |= {"/huge": Reply(200, bytes(100_001)), "/fits": Reply(200, bytes(100_000))}
    assert get(f"{server.url}/huge").error == "the answer is larger than 100,000 bytes"
    assert len(get(f"{server.url}/fits").content or b"") == 100_000
    unpacker = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(unpacker.compress(bytes(1_000_000)) for _ in range(50)) + unpacker.flush()
    server.routes["/bomb"] = Reply(200, bomb, {"Content-Encoding": "gzip"})
    assert get(f"{server.url}/bomb").error == "the answer is larger than 100,000 bytes"
    server.routes["/odd"] = Reply(200, gzip.compress(b"{}"), {"Content-Encoding": "br"})
    assert get(f"{server.url}/odd").error == "the answer is packed as 'br'; gzip was asked for"


@pytest.mark.parametrize("where", [0, 1, 20, 60])
def test_an_answer_may_be_packed_in_several_members(server: FeedServer, where: int) -> None:
    """RFC 1952, 2.2: they follow each other. All but the first were left out."""
    reply = status({"a": 3})
    body = gzip.compress(reply.body[:where]) + gzip.compress(reply.body[where:])
    headers = {"Content-Encoding": "gzip"}
    for behind in (b"", bytes(8), b"padding"):
        server.routes["/"] = Reply(200, body + behind, headers)
        assert get(f"{server.url}/").content == reply.body
    server.routes["/"] = Reply(200, body[:-9], headers)
    assert get(f"{server.url}/").error == "the answer is cut off"
    server.routes["/"] = Reply(200, body + gzip.compress(bytes(100_000)), headers)
    assert get(f"{server.url}/").error == "the answer is larger than 100,000 bytes"


def test_bytes_behind_the_packed_answer_count_as_its_size(server: FeedServer) -> None:
    """They are nothing of the document, but memory holds them."""
    reply = packed(status({"a": 3}))
    server.routes["/"] = Reply(200, reply.body + b"x" * 200_000, reply.headers)
    assert get(f"{server.url}/", most_bytes=100_000).error == "the answer is larger than 100,000 bytes"


def test_redirects_are_followed_but_not_in_a_loop_nor_to_files(server: FeedServer) -> None:
    server.routes |= {
        "/old": Reply(301, b"", {"Location": "/new"}),
        "/new": status({"a": 3}),
        "/loop": Reply(302, b"", {"Location": "/loop"}),
        "/file": Reply(302, b"", {"Location": "file:///etc/passwd"}),
    }
    assert get(f"{server.url}/old").content == status({"a": 3}).body
    loop = get(f"{server.url}/loop")
    assert (loop.status, loop.error) == (302, "more than 5 redirects")
    assert get(f"{server.url}/file").error == "the address is not http or https"
    assert get("file:///etc/passwd").error == "the address is not http or https"


def test_secrets_do_not_follow_a_redirect_to_another_origin(server: FeedServer) -> None:
    with FeedServer() as other:
        other.routes["/"] = status({"a": 3})
        server.routes |= {
            "/away": Reply(302, b"", {"Location": f"{other.url}/"}),
            "/near": Reply(302, b"", {"Location": "/end"}),
            "/end": status({"a": 3}),
        }
        secrets = Secrets.for_address(f"{server.url}/gbfs.json", {"Authorization": "Bearer hush"})
        assert "hush" not in repr(secrets)
        assert get(f"{server.url}/away", secrets=secrets).error is None
        assert get(f"{server.url}/near", secrets=secrets).error is None

        def sent(requests: list[Request]) -> list[str | None]:
            return [request.headers.get("Authorization") for request in requests]

        assert sent(server.requests) == ["Bearer hush"] * 3
        assert sent(other.requests) == [None]


def test_a_server_that_is_not_there_and_an_address_that_is_none_are_errors() -> None:
    with FeedServer() as closed:
        address = closed.url
    assert "ConnectError" in (get(f"{address}/").error or "")
    assert get("http://127.0.0.1:99999/").error is not None
    assert get("http://[::1/").error is not None


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key."""
    folder = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=127.0.0.1"
    try:
        subprocess.run(
            [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], cwd=folder, check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    return folder


def test_certificates_are_verified(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with FeedServer(context) as secure:
        secure.routes["/"] = status({"a": 3})
        assert "CERTIFICATE_VERIFY_FAILED" in (get(f"{secure.url}/").error or "")
        assert secure.requests == []
        trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
        assert get(f"{secure.url}/", verify=trusting).status == 200
