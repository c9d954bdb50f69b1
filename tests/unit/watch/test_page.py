"""The page of `--web`: it is one file, its endpoint says what `--json` says, and only this machine gets it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import struct
from importlib.resources import files
from urllib.parse import quote, urlsplit

import pytest

from rmqio.errors import LocalError
from rmqio.watch.page import _Handler, _Server, serving
from rmqio.watch.watcher import Watcher
from tests.helpers.waiting import at_most

PAGE = files("rmqio.watch").joinpath("page.html").read_text()


def get(url: str, path: str, host: str | None = None, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=at_most(10))
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def test_the_endpoint_gives_the_frame_and_the_points_that_are_new(watcher: Watcher) -> None:
    with serving(watcher, 0) as url:
        assert url.startswith("http://127.0.0.1:")
        status, headers, body = get(url, "/frame.json")
        found = json.loads(body)
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert found == watcher.frame().fields() | {"points": watcher.points()}
        assert found["total"]["lag_messages"] == 5
        watcher.poll()
        later = json.loads(get(url, f"/frame.json?after={found['time_ms']}")[2])
        assert [point["time_ms"] for point in later["points"]] == [later["time_ms"]]
        assert json.loads(get(url, "/frame.json?after=x")[2])["points"] == watcher.points()
        assert get(url, "/etc/passwd")[0] == 404


def test_the_page_may_load_nothing_else(watcher: Watcher) -> None:
    with serving(watcher, 0) as url:
        status, headers, body = get(url, "/")
    assert (status, body.decode()) == (200, PAGE)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert re.findall(r"""(?:src|href)=["'](?!data:)""", PAGE) == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", PAGE) == []
    assert "innerHTML" not in PAGE, "names come from brokers: text is set as text"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200),
        ("127.0.0.1:9", 200),
        ("localhost", 200),
        ("rebound.example:80", 403),
        ("127.0.0.1.x.example", 403),
    ],
)
def test_a_name_that_leads_here_by_trickery_is_refused(watcher: Watcher, host: str, status: int) -> None:
    with serving(watcher, 0) as url:
        assert get(url, "/frame.json", host)[0] == status
        assert get(url, "/", host)[0] == status


@pytest.mark.parametrize(("path", "status"), [("/", 200), ("/frame.json", 200), ("/x", 404)])
def test_a_head_is_what_a_get_is_without_its_body(path: str, status: int, watcher: Watcher) -> None:
    with serving(watcher, 0) as url:
        found, whole = get(url, path, method="HEAD"), get(url, path)
    assert (found[0], found[1]["Content-Type"], found[2]) == (status, whole[1]["Content-Type"], b"")
    assert int(found[1]["Content-Length"]) > 0


def test_many_requests_at_once_wait_for_their_turn() -> None:
    """A connection that does not fit into the queue would be tried again after a second, and after three."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_Server(("127.0.0.1", 0), _Handler))
        for _ in range(100):  # none of which is accepted
            stack.enter_context(socket.create_connection(server.server_address[:2], timeout=0.9))  # type: ignore[arg-type]


@pytest.mark.parametrize("after", ["-1", "x", "٣", "9" * 5_000])
def test_a_strange_time_is_none(after: str, watcher: Watcher) -> None:
    with serving(watcher, 0) as url:
        assert get(url, f"/frame.json?after={quote(after)}")[0] == 200


def test_a_browser_that_goes_away_is_not_told(watcher: Watcher, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(watcher, 0) as url:
        host, _, port = urlsplit(url).netloc.partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes with a reset
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /")
            connection.recv(1)
        for _ in range(3):
            assert get(url, "/")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_port_that_is_taken(watcher: Watcher) -> None:
    with serving(watcher, 0) as url:
        port = urlsplit(url).port
        assert port is not None
        with pytest.raises(LocalError, match=f"--web {port}: cannot listen on 127.0.0.1:{port}"):
            with serving(watcher, port):
                pass


def test_the_page_shows_fields_that_a_frame_has(watcher: Watcher) -> None:
    frame = watcher.frame().fields()
    named = {
        "frame": set(frame) | {"points"},
        "total": set(frame["total"]),
        "queue": set(frame["queues"][0]),
        "broker": set(frame["brokers"][0]),
    }
    for what, there in named.items():
        assert set(re.findall(rf"\b{what}\.([a-z_]+)\b(?![(?])", PAGE)) - there == set(), what
    assert set(re.findall(r'\["(\w+_(?:s|ms|messages)|dead_letters)"', PAGE)) - set(watcher.points()[0]) == {
        "pipeline_lag_s",
        "watermark_lag_s",
    }, "those of a pipeline are there when it is"
