"""The source of a streaming query, asked as Spark asks it."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.streaming.impulse import ImpulsePlanner
from rmqio.runners.spark.streaming.source import _TICK_S, Limits, PlannedReader, Planning, StreamSource, seen


def planning(folder: Path) -> Planning:
    source = StreamSource(0, "Impulse", ImpulsePlanner(b"x"), None)
    files = [str(folder / name) for name in ("control", "drain", "pending", "cuts")]
    return Planning((source,), 2, Limits(), False, "run", *files)


@pytest.mark.parametrize("what", ["control", "drain"])
def test_a_stream_that_is_stopped_or_drained_before_it_begins_plans_nothing(what: str, tmp_path: Path) -> None:
    given = planning(tmp_path)
    reader = PlannedReader(pickle.dumps(given))
    begin = reader.initialOffset()
    (tmp_path / what).touch()
    assert reader.latestOffset(begin, None) == begin
    assert os.path.exists(seen(given.control)), "so the query ends, and a drained checkpoint is not one"


def test_a_stream_that_has_begun_is_drained_by_a_micro_batch_that_ends_its_sources(tmp_path: Path) -> None:
    given = planning(tmp_path)
    reader = PlannedReader(pickle.dumps(given))
    begun = reader.latestOffset(reader.initialOffset(), None)
    (tmp_path / "drain").touch()
    time.sleep(_TICK_S)  # the clock alone is not worth a micro-batch sooner
    drained = reader.latestOffset(begun, None)
    assert drained["drained"]
    assert drained["to"] == begun["to"]
    assert not os.path.exists(seen(given.control))
