"""The endpoint: the process that gets the port serves all files; when it ends, another one takes over."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import logging
import os
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from rmqio import telemetry
from rmqio.addresses import shown_address
from rmqio.errors import LocalError, TransportError
from rmqio.prometheus.values import (
    Collector,
    Values,
    forget_ended_run,
    is_alive,
    process_name,
    server_of,
    shared_folder,
)
from rmqio.telemetry import METRICS, Kind, Metric

# Reads what an exporter serves, ours or another one: the values by name.

_MOST_BYTES: Final = 16_000_000


class Sample(NamedTuple):
    """One value."""

    name: str
    """As it is shown: counters end in `_total`."""
    labels: dict[str, str]
    value: float


def metrics_url(text: str) -> str:
    """Return the whole URL of an exporter: `127.0.0.1:9464` is `http://127.0.0.1:9464/metrics`.

    Raises `LocalError` for what is not a URL of HTTP.
    """
    given = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(given)
        # A word alone is as likely a mistake as a host with an exporter on port 80
        is_whole = given == text or parts.port is not None
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0 and is_whole
    except ValueError:
        is_valid = False
    if not is_valid or any(character.isspace() for character in given):
        raise LocalError(f"{text!r} is not the URL of an exporter; it must be like 127.0.0.1:9464, or http://h/metrics")
    return given if parts.path.strip("/") or parts.query else f"{given.rstrip('/')}/metrics"


def scrape(url: str, timeout_s: float) -> list[Sample]:
    """Return what the exporter serves now. Raises `TransportError` if it does not answer, or with something else."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            text = answer.read(_MOST_BYTES + 1)
    except (OSError, http.client.HTTPException, urllib.error.URLError) as error:
        raise TransportError(f"metrics {url}: {getattr(error, 'reason', None) or error}") from error
    if len(text) > _MOST_BYTES:
        raise TransportError(f"metrics {url}: the answer has more than {_MOST_BYTES // 1_000_000} MB")
    try:
        families = list(text_string_to_metric_families(text.decode()))
    except (ValueError, KeyError, IndexError) as error:
        raise TransportError(f"metrics {url}: the answer is not in Prometheus' text format") from error
    return [Sample(s.name, dict(s.labels), float(s.value)) for family in families for s in family.samples]


_LOGGER = logging.getLogger("rmqio.prometheus")

VARIABLE: Final = "RMQIO_PROMETHEUS"
"""The address to serve at, set in each process to export: `127.0.0.1:9464`, or only a port."""
_RETRY_S: Final = 10.0
"""Minimum time between two tries to get the port."""
_MAX_RETRY_S: Final = 60.0


_OF_READS: Final = ("decode_failures", "pull_retries", "offsets_skipped", "commit_failures")
_OF_SINKS: Final = ("row_failures", "row_write_retries")
_ANNOUNCED: Final = {
    "lag_messages": _OF_READS,
    "records_read": _OF_READS,
    "messages_sent": ("weak_acknowledgements",),
    "rows_written": _OF_SINKS,
}
"""Counters of failures that are shown as zero from the first value of another metric on. Prometheus' `increase` and
`rate` do not count the first value of a series, so that the first failure would be on no dashboard and in no alert."""


class Address(NamedTuple):
    host: str
    port: int


def parse_address(text: str) -> Address:
    """Parses `host:port`, `[v6]:port`, `:port` or `port`; no host means loopback. Raises `LocalError`."""
    host, _, port = text.strip().rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or (":" in host and host[:1] != "["):
        raise LocalError(
            f"{shown_address(text)!r} is not an address for Prometheus; it must be host:port, e.g. 127.0.0.1:9464"
        )
    return Address(host.strip("[]") or "127.0.0.1", int(port))


def start(address: str = "127.0.0.1:9464", *, folder: str | os.PathLike[str] | None = None) -> None:
    """Export this process's metrics, and serve those of all processes on this machine with the same address and user.

    Returns immediately. While another process has the port, that process serves, and a thread of this one waits for it
    to end. A second call with the same address does nothing.

    Args:
      address: `host:port`. Use loopback, or an address on a network where everybody may see topics and their traffic:
        there is no login.
      folder: the parent of the shared folder, `rmqio-prometheus-<user>-<port>`. None: PROMETHEUS_MULTIPROC_DIR, else
        the directory for temporary files. All processes must use the same.

    Raises `LocalError` if prometheus_client is missing, if the address differs from that of an earlier call, or if the
    folder does not belong to this user alone.
    """
    global _export
    wanted = parse_address(address)
    with _lock:
        if _export is not None:
            if _export.address != wanted:
                raise LocalError(f"metrics are already exported at {_export.address}; {wanted} is another address")
            _export.ensure_serving()
            return
        path = shared_folder(wanted.port, folder)
        if importlib.util.find_spec("prometheus_client") is None:
            raise LocalError("the export needs prometheus_client: pip install 'rmqio[prometheus]'")
        forget_ended_run(path)
        _export = Export(wanted, path)
        _export.ensure_serving()
        telemetry.install(_export)


def start_from_environment() -> None:
    """Start as RMQIO_PROMETHEUS says. If the export cannot start, log one warning: a job does not fail for it."""
    address = os.environ.get(VARIABLE)
    if not address:
        return
    try:
        start(address)
    except (LocalError, OSError) as error:
        _LOGGER.warning("metrics are not exported: %s", error)


class Export:
    """This process's `telemetry.Recorder`, which serves if it gets the port. Created by `start`."""

    def __init__(self, address: Address, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self._server: Any = None
        self._starting = threading.Lock()
        self._pid = 0
        self._has_failed = False
        self._values = Values(folder)
        self._announced: set[tuple[str, tuple[str, ...]]] = set()
        for metric in METRICS.values():
            if metric.kind is Kind.COUNTER and not metric.labels:
                self._values.add(metric, (), 0.0)  # shown from the start; and the file announces this process

    def record(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        try:
            self._record(metric, labels, value)
        except Exception as error:  # noqa: BLE001  # a full disk, a folder that was removed: no reason to fail a bundle
            if not self._has_failed:
                self._has_failed = True
                _LOGGER.warning("metrics are no longer exported: %s: %s", type(error).__name__, error)

    def _record(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        if self._pid != os.getpid():
            self.ensure_serving()
        if metric.name in _ANNOUNCED and (metric.name, labels) not in self._announced:
            self._announce(metric, labels)
        if metric.kind is Kind.GAUGE:
            self._values.set(metric, labels, value)
        else:
            self._values.add(metric, labels, value / 1000 if metric.unit == "ms" else value)

    def _announce(self, metric: Metric, labels: tuple[str, ...]) -> None:
        self._announced.add((metric.name, labels))
        for each in map(METRICS.__getitem__, _ANNOUNCED[metric.name]):
            self._values.add(each, labels[: len(each.labels)], 0.0)

    def close(self) -> None:
        """Stop recording. Serving continues."""
        self._values.close()

    def ensure_serving(self) -> None:
        """Serve as soon as the port is free; also in a forked child, which has no threads. Does not block: a thread
        waits for the port.
        """
        if self._pid == os.getpid():
            return
        with self._starting:
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
        threading.Thread(target=self._wait_for_port, name="rmqio prometheus", daemon=True).start()

    def leave_parents(self) -> None:
        """In a forked child: close the port, which would otherwise stay open after the parent ends, with nobody to
        answer. Replace locks that threads of the parent may hold.
        """
        parents, self._values, self._starting = self._values, Values(self.folder), threading.Lock()
        self._announced = set()
        if self._server is not None:
            self._server.socket.close()
            self._server = None
        parents.close()

    def _wait_for_port(self) -> None:
        from prometheus_client import CollectorRegistry

        from rmqio.prometheus.serving import metrics_server

        registry = CollectorRegistry()
        registry.register(Collector(self.folder))
        refused = 0
        while True:
            try:
                server = metrics_server(*self.address, registry)
            except OSError as error:
                served = is_alive(server_of(self.folder))
                refused = 0 if served else refused + 1
                if refused == 2:  # a process that has just started to serve has not announced it yet
                    _LOGGER.warning("metrics wait for %s:%d, which another program uses: %s", *self.address, error)
                _pause(retry_after_s(refused))
                continue
            break
        self._server = server
        threading.Thread(target=server.serve_forever, name="rmqio prometheus server", daemon=True).start()
        with contextlib.suppress(OSError):
            (self.folder / "server").write_text(process_name(os.getpid()))
        _LOGGER.info("metrics are at http://%s:%d/metrics", *self.address)


def retry_after_s(refused: int) -> float:
    """How long to wait for the port. `refused`: consecutive tries while another program, not one of ours, had it."""
    return min(_RETRY_S * (1 << min(max(refused - 1, 0), 10)), _MAX_RETRY_S)


def _pause(seconds: float) -> None:
    time.sleep(seconds)


_lock = threading.Lock()
_export: Export | None = None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    if _export is not None:
        _export.leave_parents()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
