"""The HTTP server of the metrics: who gets them, and where."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("prometheus_client", reason="the export needs the extra 'prometheus'")

from prometheus_client import CollectorRegistry, Gauge

from rmqio.addresses import is_loopback_name
from rmqio.prometheus.serving import metrics_server
from tests.helpers.waiting import at_most


@contextlib.contextmanager
def serving(host: str = "127.0.0.1") -> Iterator[int]:
    registry = CollectorRegistry()
    Gauge("lag", "of all queues", registry=registry).set(5)
    with metrics_server(host, 0, registry) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def ask(port: int, method: str, path: str, host: str = "localhost") -> tuple[int, str | None, bytes]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=at_most(10))) as connection:
        connection.request(method, path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Length"), answer.read()


def test_metrics_are_at_one_path_and_for_this_machine() -> None:
    with serving() as port:
        status, size, body = ask(port, "GET", "/metrics")
        assert (status, b"lag 5.0" in body) == (200, True)
        assert ask(port, "GET", "/metrics?name[]=other")[:1] == (200,)
        assert ask(port, "HEAD", "/metrics") == (200, size, b"")
        for path in ("/", "/metrics/x", "/../etc/passwd", "/favicon.ico"):
            assert ask(port, "GET", path)[::2] == (404, b"there is /metrics\n")
        assert ask(port, "POST", "/metrics")[0] == 405
        for method in ("GET", "HEAD"):
            assert ask(port, method, "/metrics", "rebound.example:9464")[0] == 403


def test_a_server_on_a_network_has_any_name() -> None:
    with serving("0.0.0.0") as port:
        assert ask(port, "GET", "/metrics", "worker-7.example:9464")[0] == 200


def test_many_scrapes_at_once_wait_for_their_turn() -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(metrics_server("127.0.0.1", 0, CollectorRegistry()))
        for _ in range(100):  # none of which is accepted
            stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=0.9))


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost", True), ("LOCALHOST:1", True), ("127.0.0.1:9", True), ("127.0.0.2", True), ("[::1]:9", True),
        ("[::1]", True), ("", False), ("x.example", False), ("localhost.x.example:1", False), ("10.0.0.1:9", False),
    ],
)  # fmt: skip
def test_names_of_this_machine(host: str, is_own: bool) -> None:
    assert is_loopback_name(host) is is_own
