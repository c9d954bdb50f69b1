"""The numbers of all processes, each in files of its own in a folder that they share."""

from __future__ import annotations

import bisect
import contextlib
import importlib
import math
import os
import re
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqio.errors import LocalError
from rmqio.telemetry import NAMESPACE, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable


# The folder that all processes share: whose file is whose, and what stays of processes that have ended.

FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
MAX_DEAD_FILES: Final = 32
MERGED: Final = "merged"
GAUGES: Final = "gauge_livemostrecent"
"""prometheus_client's name for the newest value of living processes. A queue can move to another process."""
_HEAD_BYTES: Final = 8
"""Size of a file's header. A smaller file has just been created, or its process was killed at that moment."""
_OURS: Final = re.compile(rf"(counter|{GAUGES}|histogram)_rmqio-(\d+-\d+|{MERGED})\.db")


def shared_folder(port: int, given: str | os.PathLike[str] | None) -> Path:
    """The shared folder, created if needed. Nobody else may write there, because its content is served."""
    if given is None:
        given = os.environ.get(FOLDER_VARIABLE) or tempfile.gettempdir()
    parent = Path(given)
    parent.mkdir(parents=True, exist_ok=True)
    path = parent / f"rmqio-prometheus-{os.getuid()}-{port}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not path.is_dir() or path.is_symlink():
        raise LocalError(
            f"{path} does not belong to this user alone: remove it, or set {FOLDER_VARIABLE} to another directory"
        )
    return path


class Collector:
    """Collects what all processes have written, after cleaning up after those that have ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Any]:
        with self._lock:  # scrapes can overlap
            clean_up(self._folder)
            files = [str(file) for files in files_by_process(self._folder).values() for file in files]
            return list(library("multiprocess").MultiProcessCollector.merge(files))


def clean_up(folder: Path) -> None:
    """Drop the gauges of processes that have ended. Their counts stay; if these are in many files, the files are
    merged into one.
    """
    dead: list[Path] = []
    for process, files in files_by_process(folder).items():
        if process is None or is_alive(process):
            continue
        for file in files:
            if file.name.startswith(GAUGES):
                file.unlink(missing_ok=True)
            else:
                dead.append(file)
    if len(dead) > MAX_DEAD_FILES:
        _merge(folder, dead)


def forget_ended_run(folder: Path) -> None:
    """Empty the folder if all processes that wrote there have ended: their counts belong to an earlier run. Called
    before this process writes, so a file with its number belongs to an earlier process.
    """
    found = files_by_process(folder)
    if any(is_alive(process) for process in found if process not in (None, process_name(os.getpid()))):
        return
    for file in (each for files in found.values() for each in files):
        file.unlink(missing_ok=True)  # another process that starts does the same


def _merge(folder: Path, files: list[Path]) -> None:
    files_class = library("mmap_dict").MmapedDict
    for file in files:
        kind = file.name.partition("_")[0]
        sums = files_class(str(folder / f"{kind}_rmqio-{MERGED}.db"))
        # Dropped first: a server that is killed in between loses one process's counts, but never counts them twice.
        values = list(files_class.read_all_values_from_file(str(file)))
        file.unlink()
        for key, value, _, _ in values:
            sums.write_value(key, sums.read_value(key)[0] + value, 0.0)
        sums.close()


def files_by_process(folder: Path) -> dict[str | None, list[Path]]:
    """The files of each process; None: the merged files. Files of other programs are ignored."""
    found: dict[str | None, list[Path]] = {}
    for file in sorted(folder.glob("*.db")):
        match = _OURS.fullmatch(file.name)
        if match and _size_of(file) >= _HEAD_BYTES:
            found.setdefault(None if match[2] == MERGED else match[2], []).append(file)
    return found


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0  # another process has merged it


def process_name(pid: int) -> str:
    """A process's number and its start time in ticks since boot, because numbers are reused."""
    try:
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        began = "0"  # not Linux
    return f"{pid}-{began}"


def is_alive(process: str | None) -> bool:
    pid = int((process or "0").partition("-")[0])
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return process_name(pid) == process


def server_of(folder: Path) -> str | None:
    try:
        found = (folder / "server").read_text()
    except OSError:
        return None
    return found if re.fullmatch(r"\d+-\d+", found) else None


def library(module: str) -> Any:
    """A module of prometheus_client that has no types."""
    return importlib.import_module(f"prometheus_client.{module}")


LATENCY_BUCKETS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds, from a broker on the same machine to an outage that was survived."""
_KINDS: Final = {Kind.COUNTER: "counter", Kind.GAUGE: GAUGES, Kind.DISTRIBUTION: "histogram"}


class Values:
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
            path = self._folder / f"{_KINDS[kind]}_rmqio-{process_name(os.getpid())}.db"
            file = self._files[kind] = library("mmap_dict").MmapedDict(str(path))
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
    key_of, name = library("mmap_dict").mmap_key, exported_name(metric)
    text = f"{metric.unit}: {metric.meaning}" if metric.unit != "ms" else metric.meaning
    if metric.kind is not Kind.DISTRIBUTION:
        yield key_of(name.removesuffix("_total"), name, metric.labels, labels, text)
        return
    yield key_of(name, f"{name}_sum", metric.labels, labels, text)
    for bound in (*LATENCY_BUCKETS_S, math.inf):
        shown = library("utils").floatToGoString(bound)
        yield key_of(name, f"{name}_bucket", (*metric.labels, "le"), (*labels, shown), text)


def exported_name(metric: Metric) -> str:
    """The name in Prometheus, with the suffix and the base unit that are usual there."""
    name = f"{NAMESPACE}_{metric.name.removesuffix('_ms')}"
    if metric.unit == "ms":
        name += "_seconds"
    return f"{name}_total" if metric.kind is Kind.COUNTER else name
