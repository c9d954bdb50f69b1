"""Ctrl-C on the DirectRunner leaves no thread of Beam, for which Python would wait at the end of the program."""

from __future__ import annotations

import signal
import threading
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.worker.statesampler import StateSampler

from rmqio.runners import options
from tests.helpers.waiting import until


def of_samplers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if isinstance(_of(each), StateSampler)]


def _of(thread: threading.Thread) -> object:
    return getattr(getattr(thread, "_target", None), "__self__", None)


def test_ctrl_c_while_a_sampler_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    samplers: list[Any] = []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if isinstance(sampler := _of(thread), StateSampler) and not samplers:
            samplers.append(sampler)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt), beam.Pipeline(options=options([])) as pipeline:
            _ = pipeline | beam.Create([1]) | beam.Map(print)
        until(lambda: not of_samplers(), "the end of the thread that samples", still_s=10)
    finally:
        signal.signal(signal.SIGINT, handler)
        for each in samplers:
            each.finished = True
    assert samplers
    assert StateSampler.start.__module__ == StateSampler.__module__, "Beam is as it was"
