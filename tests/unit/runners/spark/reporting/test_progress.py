"""The progress line on a terminal."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.reporting import Progress
from rmqio.testing import ManualClock
from tests.helpers.waiting import until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_line_names_the_transforms_and_is_wiped_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.runners.spark.reporting._EVERY_S", 0.001)
    clock = ManualClock()
    monkeypatch.setattr("rmqio.runners.spark.reporting.time", clock)
    out = Terminal()
    with Progress(lambda: (3, 8), out) as progress:
        progress("Create > Parse+Count")
        assert progress.line() == "[   0 s] Create > Parse+Count: 3 of 8 tasks"
        clock.advance(75)
        assert progress.line() == "[  75 s] Create > Parse+Count: 3 of 8 tasks"
        progress("x" * 500)
        assert len(progress.line()) == 100
        until(lambda: "x" in out.getvalue(), "the line on the terminal")
    assert out.getvalue().endswith("\r\x1b[K")
    silent = io.StringIO()
    with Progress(lambda: (0, 0), silent) as progress:
        progress("Create")
    assert silent.getvalue() == ""
