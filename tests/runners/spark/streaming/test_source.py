"""The source of a streaming query, called as Spark calls it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.streaming.micro_batch import MicroBatch, PlannedOffset, Position, SourcePlan
from rmqio.runners.spark.streaming.source import (
    _TICK_S,
    ImpulsePlanner,
    PlannedReader,
    Planning,
    QuerySignals,
    StreamSource,
    TriggerLimits,
    opaque,
)


def planning(folder: Path) -> Planning:
    source = StreamSource(0, "Impulse", opaque(ImpulsePlanner(b"x")), None)
    return Planning(
        sources=(source,),
        parallelism=2,
        limits=TriggerLimits(),
        until_now=False,
        run="run",
        signals=QuerySignals(str(folder)),
    )


@pytest.mark.parametrize("end", [QuerySignals.stop, QuerySignals.drain])
def test_a_stream_that_is_stopped_or_drained_before_it_begins_plans_nothing(
    end: Callable[[QuerySignals], None], tmp_path: Path
) -> None:
    given = planning(tmp_path)
    reader = PlannedReader(pickle.dumps(given))
    begin = reader.initialOffset()
    end(given.signals)
    assert reader.latestOffset(begin, None) == begin
    assert given.signals.is_at_end(), "so the query ends, and a drained checkpoint is not one"


def test_a_stream_that_has_begun_is_drained_by_a_micro_batch_that_ends_its_sources(tmp_path: Path) -> None:
    given = planning(tmp_path)
    reader = PlannedReader(pickle.dumps(given))
    begun = reader.latestOffset(reader.initialOffset(), None)
    given.signals.drain()
    time.sleep(_TICK_S)  # the clock alone does not cause a micro-batch sooner
    drained = reader.latestOffset(begun, None)
    assert drained["drained"]
    assert drained["to"] == begun["to"]
    assert not given.signals.is_at_end()


def test_offsets_are_read_again_as_they_were_written() -> None:
    """Spark stores them in checkpoints, which outlive a version of the program."""
    first = PlannedOffset()
    assert first.to_json() == {"number": 0, "to": {}}
    assert PlannedOffset.from_json(first.to_json()) == first
    offset = PlannedOffset(3, {"0": Position(2)}, {"0": Position(1)}, 1.5, "run", is_drained=True)
    kept = {"number": 3, "clock": 1.5, "run": "run", "from": {"0": 1}, "to": {"0": 2}, "drained": True}
    assert offset.to_json() == kept
    assert PlannedOffset.from_json(kept) == offset


def test_a_micro_batch_is_read_as_it_was_planned() -> None:
    plan = SourcePlan("Read", {"a": None, "b": 5}, {}, has_ended=False, is_done=True, rows=7, lag={"t": 2})
    batch = MicroBatch(3, 1.5, "run", {"0": Position({"at": 1})}, is_drained=False, sources={"0": plan, "1": plan})
    found = MicroBatch.decode(batch.encode())
    assert found == batch
    assert (found.rows, found.lag, found.is_done, found.has_ended) == (14, {"t": 4}, True, False)
