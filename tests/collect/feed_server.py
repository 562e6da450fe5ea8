"""A real HTTP server on loopback that serves GBFS documents and misbehaves on request; and a clock without waiting."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from unmet.collect import Clock

NOON = 1_760_011_200.0  # 2025-10-09 12:00 UTC


@dataclass(frozen=True)
class Reply:
    """An answer. `cut` sends so many bytes of the body only; `stall` waits until the server is closed."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    stall: bool = False


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]


Route = Callable[[Request], Reply] | Reply


class FeedServer:
    """Serves `routes` by path; keeps every request in `requests`."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.routes: dict[str, Route] = {}
        self.requests: list[Request] = []
        self._closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with contextlib.suppress(ConnectionError):  # a collector that was killed does not wait for its answer
                    self._answer(server.reply_to(Request(self.path, dict(self.headers.items()))))

            def _answer(self, reply: Reply) -> None:
                if reply.stall:
                    server._closing.wait()
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body[: reply.cut])
                self.wfile.flush()
                self.close_connection |= reply.cut is not None

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 200

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Say nothing: clients that refuse a certificate hang up."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if context is None else "https"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FeedServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def reply_to(self, request: Request) -> Reply:
        self.requests.append(request)
        route = self.routes.get(request.path, Reply(404, b"not here"))
        return route(request) if callable(route) else route

    def list_feeds(self, *names: str, prefix: str = "") -> None:
        """Serve a ``gbfs.json`` that lists feeds of this server."""
        feeds = [{"name": name, "url": f"{self.url}{prefix}/{name}"} for name in names]
        self.routes[f"{prefix}/gbfs.json"] = document({"en": {"feeds": feeds}})


class JumpingClock(Clock):
    """Jumps to the moment that is waited for. For one system: nothing else happens meanwhile."""

    def __init__(self, start: float = NOON) -> None:
        super().__init__(start)
        self.moment = start

    def now(self) -> float:
        return self.moment

    async def sleep_until(self, moment: float, stop: asyncio.Event) -> None:
        await asyncio.sleep(0)
        if not stop.is_set():
            self.moment = max(self.moment, moment)


def document(data: Any, updated: float = NOON, ttl: float = 60, **headers: str) -> Reply:
    body = json.dumps({"last_updated": int(updated), "ttl": ttl, "version": "2.3", "data": data}).encode()
    return Reply(200, body, headers)


def status(bikes: Mapping[str, int], updated: float = NOON, reported: float | None = None, **more: Any) -> Reply:
    """A ``station_status`` document: available bikes by station."""
    stations = [
        {
            "station_id": station,
            "num_bikes_available": count,
            "num_docks_available": 20 - count,
            "is_installed": True,
            "is_renting": True,
            "is_returning": True,
            "last_reported": int(updated if reported is None else reported),
        }
        for station, count in bikes.items()
    ]
    return document({"stations": stations}, updated, **more)


def information(*stations: str, updated: float = NOON) -> Reply:
    """A ``station_information`` document: stations on a line, with a second id."""
    rows = [
        {
            "station_id": s,
            "short_name": f"S{i}",
            "name": f"Street {s}",
            "lat": 40.7 + i / 100,
            "lon": -74.0,
            "capacity": 20,
        }
        for i, s in enumerate(stations)
    ]
    return document({"stations": rows}, updated)


def packed(reply: Reply) -> Reply:
    """The same, gzipped."""
    return Reply(reply.status, gzip.compress(reply.body), {**reply.headers, "Content-Encoding": "gzip"})
