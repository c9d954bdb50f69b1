"""The numbers of one process, in the files that prometheus_client's `MultiProcessCollector` reads."""

from __future__ import annotations

import bisect
import math
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqio.prometheus.folder import GAUGES, library, process_name
from rmqio.telemetry import NAMESPACE, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable

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
