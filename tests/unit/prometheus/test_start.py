"""The start of the export for Prometheus: its port, folder and address; what keeps it from starting; its names."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="the export needs the extra 'prometheus'")


from rmqio.errors import LocalError
from rmqio.prometheus import Address, Export, exported_name, parse_address
from rmqio.prometheus.serving import metrics_server
from rmqio.prometheus.values import Collector, process_name, shared_folder
from rmqio.telemetry import METRICS
from tests.helpers.waiting import at_most

READ = "rmqio_records_read_total"


class Enough(Exception):
    pass


def test_a_port_that_another_has_is_tried_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paused: list[float] = []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 6:
            raise Enough

    monkeypatch.setattr("rmqio.prometheus.export._pause", pause)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        contextlib.closing(Export(Address("127.0.0.1", taken.getsockname()[1]), tmp_path)) as export,
    ):
        with pytest.raises(Enough):
            export._wait_for_port()
        assert paused == [10, 20, 40, 60, 60, 60]
        (said,) = caplog.messages
        assert "which another program uses" in said
        (tmp_path / "server").write_text(process_name(os.getpid()))  # one of ours has it: it may end at any time
        paused.clear()
        with pytest.raises(Enough):
            export._wait_for_port()
        assert paused == [10] * 6


def test_nobody_waits_for_the_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the system takes its time to give it."""
    asked, go_on = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def slow(*given: Any) -> Any:
        threads.append(threading.current_thread())
        asked.set()
        assert go_on.wait(at_most(20))
        return metrics_server(*given)

    monkeypatch.setattr("rmqio.prometheus.serving.metrics_server", slow)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    export = Export(Address("127.0.0.1", port), tmp_path)
    export.ensure_serving()
    assert asked.wait(at_most(20))
    for _ in range(3):
        export.ensure_serving()
        export.record(METRICS["records_read"], ("t", "broker-a", "0"), 1)
    samples = [sample for family in Collector(tmp_path).collect() for sample in family.samples]
    assert [sample.value for sample in samples if sample.name == READ] == [3]
    go_on.set()
    (thread,) = threads
    thread.join(at_most(20))
    export._server.shutdown()
    export._server.server_close()
    export.close()


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=at_most(60),
    )


@pytest.mark.parametrize(
    ("before", "address", "said"),
    [
        ("sys.modules['prometheus_client'] = None", "127.0.0.1:1", "pip install 'rmqio[prometheus]'"),
        ("", "nowhere", "'nowhere' is not an address for Prometheus"),
    ],
)
def test_what_keeps_it_from_starting_is_said_and_the_job_goes_on(before: str, address: str, said: str) -> None:
    told = f"import sys\n{before}\nfrom rmqio import prometheus\nprometheus.start_from_environment(); print('goes on')"
    ended = run(told, RMQIO_PROMETHEUS=address)
    assert ended.stdout == "goes on\n", ended.stderr
    assert "metrics are not exported" in ended.stderr
    assert said in ended.stderr
    raised = run(f"import sys\n{before}\nfrom rmqio import prometheus\nprometheus.start({address!r})")
    assert re.search(rf"LocalError: .*{re.escape(said)}", raised.stderr)


def test_it_works_without_beam() -> None:
    program = "import sys, rmqio.prometheus; print('apache_beam' in sys.modules, 'prometheus_client' in sys.modules)"
    assert run(program).stdout == "False False\n"


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    made = shared_folder(9464, None)
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o777)
    with pytest.raises(LocalError, match="does not belong to this user alone"):
        shared_folder(9464, None)
    made.rmdir()
    made.symlink_to(tmp_path)
    with pytest.raises(LocalError, match="does not belong to this user alone"):
        shared_folder(9464, None)


@pytest.mark.parametrize(
    ("text", "host"),
    [("127.0.0.1:9464", "127.0.0.1"), (":9464", "127.0.0.1"), ("9464", "127.0.0.1"), ("[::1]:9464", "::1")],
)
def test_an_address_without_a_host_is_loopback(text: str, host: str) -> None:
    assert parse_address(text) == (host, 9464)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:0", "host:65536", "::1:9464", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(LocalError, match="not an address for Prometheus"):
        parse_address(text)


def test_names_are_those_that_prometheus_asks_for() -> None:
    names = {exported_name(metric) for metric in METRICS.values()}
    assert len(names) == len(METRICS)
    assert {READ, "rmqio_lag_seconds", "rmqio_lag_messages", "rmqio_send_latency_seconds"} <= names
    assert all(re.fullmatch(r"rmqio_[a-z_]+", name) and "_ms" not in name for name in names)
