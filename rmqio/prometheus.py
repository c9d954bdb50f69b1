"""Metrics for Prometheus: one endpoint per machine for all processes that read and write.

Workers are several processes, which start and end at any time. Each writes its numbers to files in a shared folder, in
the format of prometheus_client's multiprocess mode. The process that gets the port serves all files; when it ends,
another one takes over. Only this library uses the folder: metrics that the program itself has in prometheus_client are
stored elsewhere. Needs the extra `prometheus`, but not Beam.
"""

from __future__ import annotations

import bisect
import contextlib
import importlib
import importlib.util
import logging
import math
import os
import re
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqio import telemetry
from rmqio.errors import LocalError
from rmqio.telemetry import METRICS, NAMESPACE, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOGGER = logging.getLogger(__name__)

VARIABLE: Final = "RMQIO_PROMETHEUS"
"""The address to serve at, set in each process to export: `127.0.0.1:9464`, or only a port."""
FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
LATENCY_BUCKETS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds, from a broker on the same machine to an outage that was survived."""
_RETRY_S: Final = 10.0
"""Minimum time between two tries to get the port."""
_MAX_RETRY_S: Final = 60.0
_MAX_DEAD_FILES: Final = 32
_MERGED: Final = "merged"
_GAUGES: Final = "gauge_livemostrecent"
"""prometheus_client's name for the newest value of living processes. A queue can move to another process."""
_KINDS: Final = {Kind.COUNTER: "counter", Kind.GAUGE: _GAUGES, Kind.DISTRIBUTION: "histogram"}
_HEAD_BYTES: Final = 8
"""Size of a file's header. A smaller file has just been created, or its process was killed at that moment."""
_OURS: Final = re.compile(rf"(counter|{_GAUGES}|histogram)_rmqio-(\d+-\d+|{_MERGED})\.db")


class Address(NamedTuple):
    host: str
    port: int


def parse_address(text: str) -> Address:
    """Parses `host:port`, `[v6]:port`, `:port` or `port`; no host means loopback. Raises `LocalError`."""
    host, _, port = text.strip().rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or (":" in host and host[:1] != "["):
        raise LocalError(f"{text!r} is not an address for Prometheus; it must be host:port, e.g. 127.0.0.1:9464")
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
        path = _folder(wanted, folder)
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
        self._values = _Values(folder)
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
        if metric.kind is Kind.GAUGE:
            self._values.set(metric, labels, value)
        else:
            self._values.add(metric, labels, value / 1000 if metric.unit == "ms" else value)

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
        parents, self._values, self._starting = self._values, _Values(self.folder), threading.Lock()
        if self._server is not None:
            self._server.socket.close()
            self._server = None
        parents.close()

    def _wait_for_port(self) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(_Collector(self.folder))
        refused = 0
        while True:
            try:
                server, _ = start_http_server(self.address.port, self.address.host, registry)
            except OSError as error:
                served = _is_alive(_server_of(self.folder))
                refused = 0 if served else refused + 1
                if refused == 2:  # a process that has just started to serve has not announced it yet
                    _LOGGER.warning("metrics wait for %s:%d, which another program uses: %s", *self.address, error)
                _pause(retry_after_s(refused))
                continue
            break
        self._server = server
        with contextlib.suppress(OSError):
            (self.folder / "server").write_text(_process(os.getpid()))
        _LOGGER.info("metrics are at http://%s:%d/metrics", *self.address)


def retry_after_s(refused: int) -> float:
    """How long to wait for the port. `refused`: consecutive tries while another program, not one of ours, had it."""
    return min(_RETRY_S * (1 << min(max(refused - 1, 0), 10)), _MAX_RETRY_S)


class _Values:
    """The numbers of this process, one file per kind, as prometheus_client's `MultiProcessCollector` reads them.

    prometheus_client's own metrics would write to PROMETHEUS_MULTIPROC_DIR, together with the program's own metrics.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._files: dict[Kind, Any] = {}
        self._keys: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}

    def add(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """Add to a counter, or add an observation to a histogram, in the unit that Prometheus shows."""
        with self._lock:
            file, keys = self._file(metric.kind), self._keys_of(metric, labels)
            file.write_value(keys[0], file.read_value(keys[0])[0] + value, 0.0)
            if metric.kind is Kind.DISTRIBUTION:
                key = keys[1 + bisect.bisect_left(LATENCY_BUCKETS_S, value)]
                file.write_value(key, file.read_value(key)[0] + 1, 0.0)

    def set(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """Set a gauge."""
        with self._lock:
            self._file(metric.kind).write_value(self._keys_of(metric, labels)[0], value, time.time())

    def close(self) -> None:
        """Close the files; their content stays."""
        for file in self._files.values():
            file.close()

    def _file(self, kind: Kind) -> Any:
        file = self._files.get(kind)
        if file is None:
            path = self._folder / f"{_KINDS[kind]}_rmqio-{_process(os.getpid())}.db"
            file = self._files[kind] = _library("mmap_dict").MmapedDict(str(path))
        return file

    def _keys_of(self, metric: Metric, labels: tuple[str, ...]) -> tuple[str, ...]:
        """The key of the value; for a histogram, the keys of its sum and of each bucket."""
        found = self._keys.get((metric.name, labels))
        if found is None:
            found = self._keys[metric.name, labels] = tuple(_keys(metric, labels))
            if metric.kind is Kind.DISTRIBUTION:
                for key in found:
                    self._file(metric.kind).read_value(key)  # creates it, so that an empty bucket is shown, too
        return found


def _keys(metric: Metric, labels: tuple[str, ...]) -> Iterable[str]:
    key_of, name = _library("mmap_dict").mmap_key, exported_name(metric)
    text = f"{metric.unit}: {metric.meaning}" if metric.unit != "ms" else metric.meaning
    if metric.kind is not Kind.DISTRIBUTION:
        yield key_of(name.removesuffix("_total"), name, metric.labels, labels, text)
        return
    yield key_of(name, f"{name}_sum", metric.labels, labels, text)
    for bound in (*LATENCY_BUCKETS_S, math.inf):
        shown = _library("utils").floatToGoString(bound)
        yield key_of(name, f"{name}_bucket", (*metric.labels, "le"), (*labels, shown), text)


class _Collector:
    """Collects what all processes have written, after cleaning up after those that have ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Any]:
        with self._lock:  # scrapes can overlap
            clean_up(self._folder)
            files = [str(file) for files in _files(self._folder).values() for file in files]
            return list(_library("multiprocess").MultiProcessCollector.merge(files))


def exported_name(metric: Metric) -> str:
    """The name in Prometheus, with the suffix and the base unit that are usual there."""
    name = f"{NAMESPACE}_{metric.name.removesuffix('_ms')}"
    if metric.unit == "ms":
        name += "_seconds"
    return f"{name}_total" if metric.kind is Kind.COUNTER else name


def clean_up(folder: Path) -> None:
    """Drop the gauges of processes that have ended. Their counts stay; if these are in many files, the files are
    merged into one.
    """
    dead: list[Path] = []
    for process, files in _files(folder).items():
        if process is None or _is_alive(process):
            continue
        for file in files:
            if file.name.startswith(_GAUGES):
                file.unlink(missing_ok=True)
            else:
                dead.append(file)
    if len(dead) > _MAX_DEAD_FILES:
        _merge(folder, dead)


def forget_ended_run(folder: Path) -> None:
    """Empty the folder if all processes that wrote there have ended: their counts belong to an earlier run. Called
    before this process writes, so a file with its number belongs to an earlier process.
    """
    found = _files(folder)
    if any(_is_alive(process) for process in found if process not in (None, _process(os.getpid()))):
        return
    for file in (each for files in found.values() for each in files):
        file.unlink(missing_ok=True)  # another process that starts does the same


def _merge(folder: Path, files: list[Path]) -> None:
    files_class = _library("mmap_dict").MmapedDict
    for file in files:
        kind = file.name.partition("_")[0]
        sums = files_class(str(folder / f"{kind}_rmqio-{_MERGED}.db"))
        # Dropped first: a server that is killed in between loses one process's counts, but never counts them twice.
        values = list(files_class.read_all_values_from_file(str(file)))
        file.unlink()
        for key, value, _, _ in values:
            sums.write_value(key, sums.read_value(key)[0] + value, 0.0)
        sums.close()


def _files(folder: Path) -> dict[str | None, list[Path]]:
    """The files of each process; None: the merged files. Files of other programs are ignored."""
    found: dict[str | None, list[Path]] = {}
    for file in sorted(folder.glob("*.db")):
        match = _OURS.fullmatch(file.name)
        if match and _size_of(file) >= _HEAD_BYTES:
            found.setdefault(None if match[2] == _MERGED else match[2], []).append(file)
    return found


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0  # another process has merged it


def _process(pid: int) -> str:
    """A process's number and its start time in ticks since boot, because numbers are reused."""
    try:
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        began = "0"  # not Linux
    return f"{pid}-{began}"


def _is_alive(process: str | None) -> bool:
    pid = int((process or "0").partition("-")[0])
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return _process(pid) == process


def _server_of(folder: Path) -> str | None:
    try:
        found = (folder / "server").read_text()
    except OSError:
        return None
    return found if re.fullmatch(r"\d+-\d+", found) else None


def _folder(address: Address, given: str | os.PathLike[str] | None) -> Path:
    """The shared folder, created if needed. Nobody else may write there, because its content is served."""
    if given is None:
        given = os.environ.get(FOLDER_VARIABLE) or tempfile.gettempdir()
    parent = Path(given)
    parent.mkdir(parents=True, exist_ok=True)
    path = parent / f"rmqio-prometheus-{os.getuid()}-{address.port}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not path.is_dir() or path.is_symlink():
        raise LocalError(
            f"{path} does not belong to this user alone: remove it, or set {FOLDER_VARIABLE} to another directory"
        )
    return path


def _library(module: str) -> Any:
    """A module of prometheus_client that has no types."""
    return importlib.import_module(f"prometheus_client.{module}")


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
