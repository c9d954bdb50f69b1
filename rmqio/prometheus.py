"""The metrics for Prometheus, by its own client library: one endpoint a machine for all processes that read and write.

Workers are several processes, which come and go. Each keeps its numbers in files of a folder that they share, in the
form of prometheus_client's multiprocess mode; whichever gets the port serves what is in all of them, and another takes
over when it ends. The folder is of this library alone: what the program itself gives prometheus_client goes elsewhere.
Needs the extra `prometheus`; knows no Beam.
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
"""Where to serve, in each process that is to be seen: `127.0.0.1:9464`, or a port alone."""
FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
LATENCY_BUCKETS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""From a broker on the same machine to an outage that was waited out."""
_RETRY_S: Final = 10.0
"""Between two tries for the port, at the least."""
_MAX_RETRY_S: Final = 60.0
_MAX_DEAD_FILES: Final = 32
_MERGED: Final = "merged"
_GAUGES: Final = "gauge_livemostrecent"
"""prometheus_client's word for: the newest value of the processes that live. A queue's reader may move to another."""
_KINDS: Final = {Kind.COUNTER: "counter", Kind.GAUGE: _GAUGES, Kind.DISTRIBUTION: "histogram"}
_HEAD_BYTES: Final = 8
"""Of a file. One that has fewer has just been made, or its process was killed at that moment."""
_OURS: Final = re.compile(rf"(counter|{_GAUGES}|histogram)_rmqio-(\d+-\d+|{_MERGED})\.db")


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
      folder: where the folder is made that processes share, `rmqio-prometheus-<user>-<port>`. None:
        PROMETHEUS_MULTIPROC_DIR, else the one for temporary files. All processes must say the same.

    Raises `LocalError`: no prometheus_client; another address than before; a folder that is not this user's alone.
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
        if importlib.util.find_spec("prometheus_client") is None:
            raise LocalError("the export needs prometheus_client: pip install 'rmqio[prometheus]'")
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
        self._starting = threading.Lock()
        self._pid = 0
        self._has_failed = False
        self._values = _Values(folder)
        for metric in METRICS.values():
            if metric.kind is Kind.COUNTER and not metric.labels:
                self._values.add(metric, (), 0.0)  # shown from the start; and the file tells of this process

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
        if metric.kind is Kind.GAUGE:
            self._values.set(metric, labels, value)
        else:
            self._values.add(metric, labels, value / 1000 if metric.unit == "ms" else value)

    def close(self) -> None:
        """Record no more. Who serves goes on."""
        self._values.close()

    def ensure_serving(self) -> None:
        """Serve as soon as the port is free; also in a child that was forked, which has no threads. Never waits for
        the port: a thread of its own does.
        """
        if self._pid == os.getpid():
            return
        with self._starting:
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
        threading.Thread(target=self._wait_for_port, name="rmqio prometheus", daemon=True).start()

    def leave_parents(self) -> None:
        """In a forked child: the port would stay open, and nobody answer, when the parent ends. Locks may be held by
        threads that are not there any more.
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
                if refused == 2:  # who has just begun to serve has not said so yet
                    _LOGGER.warning("metrics wait for %s:%d, which none of ours serves: %s", *self.address, error)
                _pause(retry_after_s(refused))
                continue
            break
        self._server = server
        with contextlib.suppress(OSError):
            (self.folder / "server").write_text(_process(os.getpid()))
        _LOGGER.info("metrics are at http://%s:%d/metrics", *self.address)


def retry_after_s(refused: int) -> float:
    """How long to leave the port alone. `refused`: tries in a row while somebody else had it, not one of ours."""
    return min(_RETRY_S * (1 << min(max(refused - 1, 0), 10)), _MAX_RETRY_S)


class _Values:
    """The numbers of this process, one file a kind, as prometheus_client's `MultiProcessCollector` reads them.

    Its own metrics would do, but write where PROMETHEUS_MULTIPROC_DIR says, with what else the program counts.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._files: dict[Kind, Any] = {}
        self._keys: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}

    def add(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """To a counter, or an observation to a histogram; in the unit that Prometheus shows."""
        with self._lock:
            file, keys = self._file(metric.kind), self._keys_of(metric, labels)
            file.write_value(keys[0], file.read_value(keys[0])[0] + value, 0.0)
            if metric.kind is Kind.DISTRIBUTION:
                key = keys[1 + bisect.bisect_left(LATENCY_BUCKETS_S, value)]
                file.write_value(key, file.read_value(key)[0] + 1, 0.0)

    def set(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """A gauge."""
        with self._lock:
            self._file(metric.kind).write_value(self._keys_of(metric, labels)[0], value, time.time())

    def close(self) -> None:
        """The files; what is in them stays."""
        for file in self._files.values():
            file.close()

    def _file(self, kind: Kind) -> Any:
        file = self._files.get(kind)
        if file is None:
            path = self._folder / f"{_KINDS[kind]}_rmqio-{_process(os.getpid())}.db"
            file = self._files[kind] = _library("mmap_dict").MmapedDict(str(path))
        return file

    def _keys_of(self, metric: Metric, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Of the value; of a histogram: of its sum, then of each bucket."""
        found = self._keys.get((metric.name, labels))
        if found is None:
            found = self._keys[metric.name, labels] = tuple(_keys(metric, labels))
            if metric.kind is Kind.DISTRIBUTION:
                for key in found:
                    self._file(metric.kind).read_value(key)  # makes it: an empty bucket is shown, too
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
    """What all processes have written. Looks for those that have ended first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Any]:
        with self._lock:  # scrapes may overlap
            clean_up(self._folder)
            files = [str(file) for files in _files(self._folder).values() for file in files]
            return list(_library("multiprocess").MultiProcessCollector.merge(files))


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
    """Empty the folder when all who have written there have ended: what they counted belongs to an earlier run. Called
    before this process writes: a number of its own was then another's.
    """
    found = _files(folder)
    if any(_is_alive(process) for process in found if process not in (None, _process(os.getpid()))):
        return
    for file in (each for files in found.values() for each in files):
        file.unlink(missing_ok=True)  # another one that starts does the same


def _merge(folder: Path, files: list[Path]) -> None:
    files_class = _library("mmap_dict").MmapedDict
    for file in files:
        kind = file.name.partition("_")[0]
        sums = files_class(str(folder / f"{kind}_rmqio-{_MERGED}.db"))
        # Dropped first: killed in between, a server loses counts of one process, but never counts them twice.
        values = list(files_class.read_all_values_from_file(str(file)))
        file.unlink()
        for key, value, _, _ in values:
            sums.write_value(key, sums.read_value(key)[0] + value, 0.0)
        sums.close()


def _files(folder: Path) -> dict[str | None, list[Path]]:
    """The files of each process; None: what was merged. Others' are none of our business."""
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
        return 0  # another has merged it


def _process(pid: int) -> str:
    """A process's number and when it began, in ticks since the machine did: numbers are used again."""
    try:
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        began = "0"  # no Linux
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
    """Made if need be. Nobody else may write there: what is served comes from it."""
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
            f"{path} is not a folder of this user alone: remove it, or set {FOLDER_VARIABLE} to another place"
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
