"""The metrics for Prometheus, by its own client library: one endpoint a machine for all processes that read and write.

Workers are several processes, which come and go. Each keeps its numbers in files of a folder that they share
(prometheus_client's multiprocess mode); whichever gets the port serves what is in all of them, and another takes over
when it ends. Needs the extra `prometheus`; knows no Beam.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import logging
import os
import re
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqio import telemetry
from rmqio.errors import LocalError
from rmqio.telemetry import METRICS, NAMESPACE, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOGGER = logging.getLogger(__name__)

VARIABLE: Final = "RMQIO_PROMETHEUS"
"""Where to serve, in each process that is to be seen: `127.0.0.1:9464`, or a port alone."""
FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
LATENCY_BUCKETS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""From a broker on the same machine to an outage that was waited out."""
_RETRY_S: Final = 1.0
_MAX_DEAD_FILES: Final = 32
_MERGED: Final = "merged"


class Address(NamedTuple):
    host: str
    port: int


def parse_address(text: str) -> Address:
    """`host:port`, `[v6]:port`, `:port` or `port`; without a host it is loopback. Raises `LocalError`."""
    host, _, port = text.strip().rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or (":" in host and host[:1] != "["):
        raise LocalError(f"{text!r} is no address for Prometheus; it must be host:port, as 127.0.0.1:9464")
    return Address(host.strip("[]") or "127.0.0.1", int(port))


def start(address: str = "127.0.0.1:9464", *, folder: str | os.PathLike[str] | None = None) -> None:
    """Export this process's metrics, and serve those of all on this machine with the same address and user.

    Returns at once. While another process has the port, that one serves, and a thread of this one waits for it to end.
    Again with the same address it does nothing.

    Args:
      address: `host:port`. Give the loopback, or an address that only those reach who may see topics and their traffic:
        there is no login.
      folder: where processes share their numbers. None: PROMETHEUS_MULTIPROC_DIR, else one in the folder for temporary
        files, of this user and port.

    Raises `LocalError`: no prometheus_client; it was imported before by a program that did not set
    PROMETHEUS_MULTIPROC_DIR; another address than before; a folder that is not ours.
    """
    global _export
    wanted = parse_address(address)
    with _lock:
        if _export is not None:
            if _export.address != wanted:
                raise LocalError(f"the export goes on at {_export.address}; it cannot be at {wanted} as well")
            _export.ensure_serving()
            return
        path = _folder(wanted, folder)
        if "prometheus_client" not in sys.modules:
            os.environ[FOLDER_VARIABLE] = str(path)  # read when it is imported
        try:
            from prometheus_client import values
        except ImportError as error:
            raise LocalError("the export needs prometheus_client: pip install 'rmqio[prometheus]'") from error
        if not getattr(values.ValueClass, "_multiprocess", False) or os.environ.get(FOLDER_VARIABLE) != str(path):
            raise LocalError(
                f"prometheus_client was imported before the export started, without {FOLDER_VARIABLE}={path}: set that "
                "in the environment, or start the export first"
            )
        forget_ended_run(path)
        _export = Export(wanted, path)
        _export.ensure_serving()
        telemetry.install(_export)


def start_from_environment() -> None:
    """As RMQIO_PROMETHEUS says. What keeps the export from starting is a warning, once: a job does not fail for it."""
    address = os.environ.get(VARIABLE)
    if not address:
        return
    try:
        start(address)
    except (LocalError, OSError) as error:
        _LOGGER.warning("metrics are not exported: %s", error)


class Export:
    """This process's `telemetry.Recorder`, and its turn at the port. Made by `start`."""

    def __init__(self, address: Address, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self._server: Any = None
        self._pid = 0
        self._has_failed = False
        self._made = {name: _make(metric) for name, metric in METRICS.items()}
        self._children: dict[tuple[str, tuple[str, ...]], Any] = {}

    def record(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        try:
            self._record(metric, labels, value)
        except Exception as error:  # noqa: BLE001  # a full disk, a folder that was removed: no reason to fail a bundle
            if not self._has_failed:
                self._has_failed = True
                _LOGGER.warning("metrics are not exported any more: %s: %s", type(error).__name__, error)

    def _record(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        if self._pid != os.getpid():
            self.ensure_serving()
        key = metric.name, labels
        child = self._children.get(key)
        if child is None:
            made = self._made[metric.name]
            child = self._children[key] = made.labels(*labels) if labels else made
        if metric.kind is Kind.COUNTER:
            child.inc(value)
        elif metric.kind is Kind.GAUGE:
            child.set(value)
        else:
            child.observe(value / 1000 if metric.unit == "ms" else value)

    def ensure_serving(self) -> None:
        """Serve as soon as the port is free; also in a child that was forked, which has no threads."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            threading.Thread(target=self._wait_for_port, name="rmqio prometheus", daemon=True).start()

    def leave_parents_port(self) -> None:
        """In a forked child: the port would stay open, and nobody answer, when the parent ends."""
        if self._server is not None:
            self._server.socket.close()
            self._server = None

    def _wait_for_port(self) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(_Collector(self.folder))
        pause, tries = threading.Event(), 0
        while True:
            try:
                server, _ = start_http_server(self.address.port, self.address.host, registry)
            except OSError as error:
                tries += 1
                if tries == 3 and not _is_alive(_server_of(self.folder)):
                    _LOGGER.warning("metrics wait for %s:%d, which none of ours serves: %s", *self.address, error)
                pause.wait(_RETRY_S)
                continue
            break
        self._server = server
        with contextlib.suppress(OSError):
            (self.folder / "server").write_text(str(os.getpid()))
        _LOGGER.info("metrics are at http://%s:%d/metrics", *self.address)


class _Collector:
    """What all processes have written. Looks for those that have ended first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all = _library("multiprocess").MultiProcessCollector(None, str(folder))
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Any]:
        with self._lock:  # scrapes may overlap
            clean_up(self._folder)
            return list(self._all.collect())


def exported_name(metric: Metric) -> str:
    """As Prometheus shows it, with the suffix and the base unit that are usual there."""
    name = f"{NAMESPACE}_{metric.name.removesuffix('_ms')}"
    if metric.unit == "ms":
        name += "_seconds"
    return f"{name}_total" if metric.kind is Kind.COUNTER else name


def clean_up(folder: Path) -> None:
    """Drop the gauges of processes that have ended, which nobody sets any more. What they counted stays; when that is
    in many files, they become one.
    """
    dead: list[str] = []
    for pid, files in _files(folder).items():
        if not _is_alive(pid):
            _library("multiprocess").mark_process_dead(pid, str(folder))
            dead += [file for file in files if os.path.exists(file)]
    if len(dead) > _MAX_DEAD_FILES:
        _merge(folder, dead)


def forget_ended_run(folder: Path) -> None:
    """Empty the folder when all who have written there have ended: what they counted belongs to an earlier run. Called
    before this process writes: a number of its own was then another's.
    """
    found = _files(folder)
    merged = [str(file) for file in folder.glob(f"*_{_MERGED}.db")]
    if any(_is_alive(pid) for pid in found if pid != os.getpid()):
        return
    for file in [*merged, *(each for files in found.values() for each in files)]:
        with contextlib.suppress(FileNotFoundError):  # another one that starts does the same
            os.remove(file)


def _merge(folder: Path, files: list[str]) -> None:
    files_class = _library("mmap_dict").MmapedDict
    for file in files:
        kind = os.path.basename(file).partition("_")[0]
        sums = files_class(str(folder / f"{kind}_{_MERGED}.db"))
        # Dropped first: killed in between, a server loses counts of one process, but never counts them twice.
        values = list(files_class.read_all_values_from_file(file))
        os.remove(file)
        for key, value, _, _ in values:
            sums.write_value(key, sums.read_value(key)[0] + value, 0.0)
        sums.close()


def _files(folder: Path) -> dict[int, list[str]]:
    """The files of each process."""
    found: dict[int, list[str]] = {}
    for file in glob.glob(str(folder / "*.db")):
        match = re.search(r"_(\d+)\.db$", file)
        if match:
            found.setdefault(int(match[1]), []).append(file)
    return found


def _is_alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _server_of(folder: Path) -> int:
    try:
        return int((folder / "server").read_text())
    except (OSError, ValueError):
        return 0


def _folder(address: Address, given: str | os.PathLike[str] | None) -> Path:
    """Made if need be. Nobody else may write there: what is served comes from it."""
    if given is None:
        given = os.environ.get(FOLDER_VARIABLE)
    if given is not None:
        path = Path(given)
        path.mkdir(parents=True, exist_ok=True)
        return path
    path = Path(tempfile.gettempdir()) / f"rmqio-prometheus-{os.getuid()}-{address.port}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not path.is_dir() or path.is_symlink():
        raise LocalError(f"{path} is not a folder of this user alone: remove it, or set {FOLDER_VARIABLE}")
    return path


def _library(module: str) -> Any:
    """A module of prometheus_client that has no types."""
    return importlib.import_module(f"prometheus_client.{module}")


def _make(metric: Metric) -> Any:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

    name, labels, registry = exported_name(metric), metric.labels, CollectorRegistry()
    text = f"{metric.unit}: {metric.meaning}" if metric.unit != "ms" else metric.meaning
    if metric.kind is Kind.COUNTER:
        return Counter(name, text, labels, registry=registry)
    if metric.kind is Kind.GAUGE:
        # The newest value of the processes that live: a queue's reader may move to another one.
        return Gauge(name, text, labels, registry=registry, multiprocess_mode="livemostrecent")
    return Histogram(name, text, labels, registry=registry, buckets=LATENCY_BUCKETS_S)


_lock = threading.Lock()
_export: Export | None = None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    if _export is not None:
        _export.leave_parents_port()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
