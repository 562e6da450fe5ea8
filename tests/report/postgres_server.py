"""A real PostgreSQL server on loopback, started from the binaries of Debian's package."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PASSWORD = "p@ss/wo?rd#1"
ENCODED = "p%40ss%2Fwo%3Frd%231"


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int

    @property
    def url(self) -> str:
        return f"postgresql://unmet:{ENCODED}@127.0.0.1:{self.port}/postgres"


def find_binaries() -> Path | None:
    """The folder of initdb: that of the newest Debian package, else of one in PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    named = shutil.which("initdb")
    return Path(named).resolve().parent if named else None


@contextmanager
def running_server(*settings: str) -> Iterator[Server]:
    """Start a server in a folder of its own; `settings` are such as ``fsync=off``."""
    binaries = find_binaries()
    assert binaries is not None
    folder = Path(tempfile.mkdtemp(prefix="unmet-pg-"))
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        user = pwd.getpwnam("postgres" if _has_user("postgres") else "nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    data, secret = folder / "data", folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["-A", "scram-sha-256", "-U", "unmet", f"--pwfile={secret}", "-E", "UTF8", "--locale=C", "--no-sync"]
    quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "cwd": folder, **as_user}
    subprocess.run([binaries / "initdb", "-D", data, *options], **quiet)
    chosen = [f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", *settings]
    flags = " ".join(f"-c {setting}" for setting in chosen)
    control = [binaries / "pg_ctl", "-D", data, "-l", folder / "log", "-w"]
    try:
        subprocess.run([*control, "-o", flags, "start"], **quiet)
        try:
            yield Server(port)
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **quiet)
    finally:
        shutil.rmtree(folder)


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
