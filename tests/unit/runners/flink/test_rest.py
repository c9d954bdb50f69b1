"""Stop with a savepoint: what a connection that breaks means for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rmqio.runners.errors import FlinkError, FlinkSilent
from rmqio.runners.flink import rest
from rmqio.runners.flink.rest import FlinkRest

Start = Callable[..., FlinkRest]
RUNNING: dict[str, Any] = {"status": {"id": "IN_PROGRESS"}}
DONE: dict[str, Any] = {"status": {"id": "COMPLETED"}, "operation": {"location": "file:/s/savepoint-1"}}


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Returns a function that starts a server with these answers to polls. None: it closes the connection.

    `tasks`: the states of tasks, as they are asked for before; the last ones stay.
    """
    monkeypatch.setattr(rest, "_POLL_S", 0.01)
    servers = []

    def start(polls: list[dict[str, Any] | None], tasks: Sequence[dict[str, int]] = ({},)) -> FlinkRest:
        asked = [{"vertices": [{"tasks": {"RUNNING": 1}}, {"tasks": each}]} for each in tasks]

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert len(asked) == 1, "asked for a savepoint before all tasks ran"
                self._answer({"request-id": "7"})

            def do_GET(self) -> None:
                if not self.path.endswith("/7"):
                    self._answer(asked.pop(0) if len(asked) > 1 else asked[0])
                    return
                answer = polls.pop(0) if polls else None
                if answer is not None:
                    self._answer(answer)

            def _answer(self, answer: dict[str, Any]) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return FlinkRest(f"127.0.0.1:{server.server_port}")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_broken_connection_does_not_lose_the_savepoint(start: Start) -> None:
    assert start([RUNNING, None, RUNNING, None, None, DONE]).stop("job") == "file:/s/savepoint-1"


def test_a_savepoint_waits_until_all_tasks_run(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [{"SCHEDULED": 2}, {"DEPLOYING": 1, "RUNNING": 1}, {"INITIALIZING": 2}, {"RUNNING": 1, "FINISHED": 1}]
    assert start([DONE], tasks).stop("job") == "file:/s/savepoint-1"
    monkeypatch.setattr(rest, "_START_S", 0.0)
    with pytest.raises(FlinkError, match="no savepoint of job job: 2 of its tasks did not start within 0 s"):
        start([DONE], tasks).stop("job")


def test_a_flink_that_is_gone_is_reported_with_the_folder_of_the_savepoint(start: Start) -> None:
    with pytest.raises(FlinkSilent, match=r"does not answer GET .*asked to stop, and its savepoint may be in file:/s"):
        start([RUNNING]).stop("job", "file:/s")


def test_a_failed_savepoint_is_reported_with_its_cause(start: Start) -> None:
    failed = {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": {"stack-trace": "A\nCaused by: no space"}}}
    with pytest.raises(FlinkError, match="no savepoint of job job: Caused by: no space"):
        start([failed]).stop("job")
