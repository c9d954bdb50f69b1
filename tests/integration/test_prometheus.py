"""A real Prometheus scrapes rmqio, and answers what the panels of docs/operate/grafana.json ask."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="metrics need the extra 'prometheus'")

from tests.helpers.imports import ROOT
from tests.helpers.servers.debian import unpacked
from tests.helpers.servers.ports import reserved_port
from tests.helpers.servers.prometheus import QUEUE, Machine
from tests.helpers.waiting import at_most, until, until_up

pytestmark = [
    pytest.mark.systems,
    pytest.mark.slow,
]

BOARD: dict[str, Any] = json.loads((ROOT / "docs" / "operate" / "grafana.json").read_text())
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: rmqio
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Prometheus:
    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, expression: str, path: str = "query") -> Any:
        """Returns the answer's data. An expression with a fault is an error."""
        arguments = urllib.parse.urlencode({"query": expression} if path == "query" else {"match[]": expression})
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self._port}/api/v1/{path}?{arguments}", timeout=at_most(10)
        ) as answer:
            return json.load(answer)["data"]

    def series(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Returns the points that Grafana would draw: variables have the values with which the dashboard opens."""
        asked = expression.replace("$__rate_interval", "4s").replace("$topic", ".*")
        return [(each["metric"], float(each["value"][1])) for each in self.ask(asked)["result"]]


@contextlib.contextmanager
def prometheus(target: int, folder: Path) -> Iterator[Prometheus]:
    program = shutil.which("prometheus") or unpacked("prometheus") / "usr/bin/prometheus"
    port = reserved_port()
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.format(port=target))
    arguments = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    process = subprocess.Popen(
        [program, *arguments, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL
    )
    try:
        server = Prometheus(port)
        until_up(lambda: answers(lambda: server.ask("up")["result"]), "Prometheus")
        yield server
    finally:
        process.terminate()
        process.wait(at_most(30))


def answers(ask: Callable[[], Any]) -> bool:
    try:
        return bool(ask())
    except OSError:
        return False


def expressions() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for panel in BOARD["panels"]:
        found.setdefault(panel["title"], []).extend(target["expr"] for target in panel["targets"])
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It has seen a worker that read for some seconds, and whose first failure to decode came after that."""
    machine = Machine(tmp_path_factory.mktemp("exports"))
    worker = machine.worker()
    worker.record("lag_messages", QUEUE, 40)
    with prometheus(machine.port, tmp_path_factory.mktemp("prometheus")) as server:
        until(lambda: bool(server.series("rmqio_lag_messages")), "the first scrape")
        for _ in range(4):
            worker.record("records_read", QUEUE, 10)
            worker.record("lag_seconds", QUEUE, 2.5)
            time.sleep(1)
        worker.record("decode_failures", "t", 3)
        until(lambda: bool(server.series("rmqio_decode_failures_total > 0")), "the scrape with the failure")
        yield server
    worker.kill()


def test_it_takes_every_expression(server: Prometheus) -> None:
    for title, asked in expressions().items():
        for expression in asked:
            assert server.series(expression) is not None, title


def test_the_first_failure_shows(server: Prometheus) -> None:
    """Also if nothing else has failed."""
    (expression,) = expressions()["Failures in the last hour"]
    ((_, failures),) = server.series(expression)
    assert failures == pytest.approx(3, rel=0.5)  # Prometheus extrapolates to the hour
    decoded, *_ = expressions()["Messages that failed"]
    ((_, rate),) = server.series(decoded)
    assert rate > 0


def test_a_read_fills_its_panels(server: Prometheus) -> None:
    assert server.series(expressions()["Lag"][0]) == [({}, 40.0)]
    assert server.series(expressions()["Lag by topic"][0]) == [({"topic": "t"}, 40.0)]
    assert server.series(expressions()["Read delay"][0]) == [({}, 2.5)]
    (query,) = [each["query"]["query"] for each in BOARD["templating"]["list"] if each["type"] == "query"]
    pattern = re.fullmatch(r"label_values\((.*), topic\)", query)
    assert pattern is not None
    assert {each["topic"] for each in server.ask(pattern[1], "series")} == {"t"}
