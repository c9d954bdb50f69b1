"""The pipeline's own metrics: what its exporter serves, as a view. Pure but for the class that asks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from rmqio.errors import TransportError
from rmqio.prometheus.export import Sample, scrape
from rmqio.prometheus.values import exported_name
from rmqio.telemetry import METRICS
from rmqio.watch.figures import WINDOW_S, Offsets
from rmqio.watch.frames import PipelineView

ERRORS: Final = (
    "decode_failures",
    "send_failures",
    "lookup_failures",
    "row_failures",
    "commit_failures",
    "offsets_skipped",
    "unknown_outcomes",
    "weak_acknowledgements",
    "table_refresh_failures",
    "pull_retries",
    "send_retries",
    "row_write_retries",
    "dead_letters",
)
"""The counters that say that something went wrong, the worst first."""


class Pipeline:
    """Asks the exporter, and remembers what it said."""

    def __init__(self, url: str, every_s: float, timeout_s: float) -> None:
        self._url, self._timeout_s = url, timeout_s
        window_s = max(WINDOW_S, 2.5 * every_s)
        self._read, self._sent = Offsets(window_s), Offsets(window_s)
        self._last: dict[str, float] = {}
        self._grown = 0.0
        self._seen = False
        self._answered_ms: int | None = None
        self._lag_s: float | None = None
        self._watermark_lag_s: float | None = None

    def look(self, now_ms: int) -> PipelineView:
        """Ask, and return the view; if nobody answers, with the values of the last answer and the reason."""
        try:
            self.take(scrape(self._url, self._timeout_s), now_ms)
        except TransportError as error:
            return self.view(now_ms, str(error))
        return self.view(now_ms)

    def take(self, samples: Iterable[Sample], now_ms: int) -> None:
        """Take in an answer."""
        counters: dict[str, float] = defaultdict(float)
        gauges: dict[str, float] = {}
        for name, _, value in samples:
            if math.isfinite(value):
                counters[name] += value
                gauges[name] = max(gauges.get(name, value), value)
        self._answered_ms = now_ms
        self._lag_s = gauges.get(_name("lag_seconds"))
        self._watermark_lag_s = gauges.get(_name("watermark_lag_seconds"))
        for offsets, metric in ((self._read, "records_read"), (self._sent, "messages_sent")):
            if (count := counters.get(_name(metric))) is not None:
                offsets.add(now_ms / 1000, round(count))
        found = {name: counters.get(_name(name), 0.0) for name in ERRORS}
        if self._seen:  # a counter that is smaller than before belongs to a new run
            self._grown += sum(n - self._last[k] if n >= self._last[k] else n for k, n in found.items())
        self._last, self._seen = found, True

    def view(self, now_ms: int, error: str | None = None) -> PipelineView:
        """Return what is known."""
        return PipelineView(
            self._url, self._answered_ms, error, self._lag_s, self._watermark_lag_s,
            self._read.rate(now_ms / 1000), self._sent.rate(now_ms / 1000),
            {name: value for name, value in self._last.items() if value}, self._grown,
        )  # fmt: skip


def _name(metric: str) -> str:
    return exported_name(METRICS[metric])
