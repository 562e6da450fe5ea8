from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from feed_server import FeedServer, Reply, Request, information, status
from typer.testing import CliRunner, Result

from unmet import FileFormatError, InputError
from unmet.cli import app
from unmet.cli._collecting import parse_headers, parse_systems


@pytest.fixture
def server() -> Iterator[FeedServer]:
    with FeedServer() as serving:
        serving.list_feeds("station_status", "station_information")
        serving.routes |= {"/station_status": status({"a": 3}), "/station_information": information("a")}
        yield serving


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_once_collects_and_status_shows_it(server: FeedServer, tmp_path: Path) -> None:
    out = tmp_path / "feeds"
    result = call("collect", f"oslo={server.url}/gbfs.json", "--out", out, "--once", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["systems"] == {"oslo": {"polls": 3, "failed": 0, "changes": 3}}
    shown = call("collect", "status", out)
    assert shown.exit_code == 0
    assert "oslo" in shown.stdout
    (summary,) = json.loads(call("collect", "status", out / "oslo", "--json").stdout)["systems"]
    assert (summary["system"], summary["polls"], summary["rows"], summary["damaged"]) == ("oslo", 1, 1, [])


def test_status_ends_with_1_if_a_file_is_damaged(server: FeedServer, tmp_path: Path) -> None:
    out = tmp_path / "feeds"
    call("collect", f"oslo={server.url}/gbfs.json", "--out", out, "--once")
    (segment,) = out.glob("oslo/open/*.segment")
    content = bytearray(segment.read_bytes())
    content[40] ^= 1
    segment.write_bytes(content)
    shown = call("collect", "status", out)
    assert (shown.exit_code, shown.stdout.count("oslo: damaged: open/")) == (1, 1)
    assert call("collect", "status", out, "--json").exit_code == 1


def test_once_without_any_answer_ends_with_1(server: FeedServer, tmp_path: Path) -> None:
    server.routes.clear()
    result = call("collect", f"{server.url}/gbfs.json", "--out", tmp_path / "feeds", "--once")
    assert result.exit_code == 1
    assert "gbfs: HTTP 404." in result.stderr


def test_a_time_ends_it(server: FeedServer, tmp_path: Path) -> None:
    result = call("collect", f"{server.url}/gbfs.json", "--out", tmp_path / "feeds", "--for", "0.5s")
    assert result.exit_code == 0
    assert "3 polls, 0 failed; 3 rows written." in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_end_it_when_the_poll_is_written(server: FeedServer, tmp_path: Path, number: int, code: int) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def answer(_: Request) -> Reply:
        asked.set()
        go_on.wait(60)
        return status({"a": 3})

    server.routes["/station_status"] = answer
    command = [sys.executable, "-c", "from unmet.cli import main; main()", "collect", f"x={server.url}/gbfs.json"]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "feeds"), "--json"], stdout=subprocess.PIPE)
    try:
        assert asked.wait(60)
        process.send_signal(number)
        go_on.set()
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code
    assert json.loads(output)["systems"]["x"]["failed"] == 0
    (summary,) = json.loads(call("collect", "status", tmp_path / "feeds", "--json").stdout)["systems"]
    assert summary["polls"] == 1


def test_headers_come_from_the_environment_and_are_shown_nowhere(
    server: FeedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEED_TOKEN", "Bearer hush")
    words = ["collect", f"{server.url}/gbfs.json", "--out", tmp_path / "feeds", "--once"]
    result = call(*words, "--header", "Authorization=FEED_TOKEN")
    assert {request.headers.get("Authorization") for request in server.requests} == {"Bearer hush"}
    assert "hush" not in result.output
    for wrong, said in (
        ("Authorization=NOT_SET", "the environment variable NOT_SET is not set"),
        ("Authorization", "expected a header and the name of an environment variable"),
        ("Authorization=Bearer hush", "expected a header and the name of an environment variable"),
    ):
        refused = call(*words, "--header", wrong)
        assert said in str(refused.exception)
        assert "hush" not in str(refused.exception)


def test_a_header_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_TOKEN", "hush")
    monkeypatch.setenv("OTHER_TOKEN", "still")
    with pytest.raises(InputError, match="x-key is given twice"):
        parse_headers(["X-Key=FEED_TOKEN", "x-key=OTHER_TOKEN"])


def test_a_secret_is_for_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_TOKEN", "hush")
    headers = parse_headers(["X-Key=FEED_TOKEN"])
    assert len(parse_systems(["https://a.org/1/gbfs.json", "https://a.org/2/gbfs.json"], None, headers)) == 2
    with pytest.raises(Exception, match="several hosts"):
        parse_systems(["https://a.org/gbfs.json", "https://b.org/gbfs.json"], None, headers)


def test_systems_come_from_lines_or_from_the_public_catalogue(tmp_path: Path) -> None:
    plain = tmp_path / "systems.txt"
    plain.write_text("# mine\noslo https://a.org/gbfs.json\n\nhttps://b.org/city/gbfs.json\n")
    assert [(s.name, s.address) for s in parse_systems([], plain, {})] == [
        ("oslo", "https://a.org/gbfs.json"),
        ("b.org-city", "https://b.org/city/gbfs.json"),
    ]
    catalogue = tmp_path / "systems.csv"
    catalogue.write_text(
        "Country Code,Name,Location,System ID,URL,Auto-Discovery URL,Supported Versions\n"
        'NO,"Oslo, by","Oslo, NO",oslo/../x,https://o.no,https://a.org/gbfs.json,1.0\n'
        "NO,Bergen,Bergen,bergen,https://b.no,,2.3\n"
    )
    assert [(s.name, s.address) for s in parse_systems([], catalogue, {})] == [("oslo-..-x", "https://a.org/gbfs.json")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("My Auto-Discovery URL,System ID\nhttps://a.org/gbfs.json,x\n", "expected a column 'Auto-Discovery URL'"),
        (f"System ID,Auto-Discovery URL\nx,https://a.org/{'a' * 200_000}\n", "field larger than field limit"),
        ("a https://a.org/gbfs.json\n" * 400_000, "larger than 10,000,000 bytes"),
    ],
)
def test_what_is_no_list_of_systems_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "systems.csv"
    file.write_text(text)
    with pytest.raises(FileFormatError, match=said):
        parse_systems([], file, {})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Nothing to collect"),
        (["ftp://x/gbfs.json"], "expected the http address"),
        (["x=http://y/", "x=http://z/"], "the same name"),
        (["http://x/", "--for", "soon"], "--for: expected a time"),
        (["http://x/", "--for", "-1h"], "--for: expected a time"),
        (["http://x/", "--contact", "a\r\nHost: b"], "contact: expected ASCII text"),
        (["http://x/", "--contact", "Zoë"], "contact: expected ASCII text"),
        (["http://x/", "--systems", "nowhere.txt"], "cannot be read as a list of systems"),
        (["status", "nowhere"], "no history of a feed is here"),
    ],
)
def test_what_cannot_be_collected_is_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("collect", *words)
    assert said in str(result.exception)
    assert os.listdir(tmp_path) == []
