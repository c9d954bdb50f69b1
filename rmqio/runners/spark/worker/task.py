"""The function that `mapInArrow` runs for a stage. One thread runs the bundles, and Spark's thread takes their rows."""

from __future__ import annotations

import itertools
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.value_provider import RuntimeValueProvider

from rmqio.runners.spark.beam import patches
from rmqio.runners.spark.beam.private import ENCODED_IMPULSE_VALUE
from rmqio.runners.spark.bootstrap import begin
from rmqio.runners.spark.model import Form, StageTask, TaskReport
from rmqio.runners.spark.worker.attempt import running_attempt
from rmqio.runners.spark.worker.bundles import Bundles
from rmqio.runners.spark.worker.fusion import fused_dofns
from rmqio.runners.spark.worker.rows import RowQueue, RowWriter, threaded
from rmqio.runners.spark.worker.shuffling import writing
from rmqio.runners.spark.worker.shuffling.grouping import Row, by_key, chunks, grouped
from rmqio.runners.spark.worker.side_inputs import SideInputBroadcast
from rmqio.runners.spark.worker.spool import Spool

Warned = tuple[str, str, str, int]
_KEYED_BUNDLE_BYTES: Final = 4 << 20  # bounds the keys whose state is in memory at the same time


def run_stage(
    task: StageTask,
    broadcasts: Mapping[str, SideInputBroadcast],
    send: Callable[[TaskReport], None],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yields the rows that a stage writes for the rows of one partition. On success, `send` receives the report."""
    report = TaskReport(os.getpid())

    def work(rows: RowQueue) -> None:
        with recorded() as report.warnings:
            _run(task, broadcasts, RowWriter(rows), report, batches)

    yield from threaded(work, task.name)
    send(report)


def _run(
    task: StageTask,
    broadcasts: Mapping[str, SideInputBroadcast],
    rows: RowWriter,
    report: TaskReport,
    batches: Iterable[pa.RecordBatch],
) -> None:
    if task.bootstrap is not None:
        begin(task.bootstrap)  # before any object of the user is unpickled
    found = _input(task, batches)
    first = next(found, None)
    if first is None:
        return  # the partition is empty: no setup and no bundle, as in Beam's runners
    found = itertools.chain([first], found)
    prepared(task.options)
    spool = Spool()
    bundles = Bundles(task, broadcasts, rows, spool, report)
    failed = True
    try:
        with running_attempt():
            for bundle in _bundles(task, bundles, found, spool):
                bundles.run(bundle)
                spool.clear()
        rows.flush()
        failed = False
    finally:
        bundles.close(failed)
        spool.close()


def prepared(options: Mapping[str, object]) -> None:
    """Prepares this process for bundles of a pipeline with these options."""
    patches.apply({**writing.CREATORS, **fused_dofns.CREATORS})
    # Beam logs here what is raised anyway, on each attempt
    logging.getLogger("apache_beam.runners.common").setLevel(logging.CRITICAL)
    RuntimeValueProvider.set_runtime_options(dict(options))
    FileSystems.set_options(PipelineOptions.from_dictionary(dict(options)))


def _bundles(
    task: StageTask, bundles: Bundles, found: Iterator[bytes | Row], spool: Spool
) -> Iterator[Iterator[bytes]]:
    """Yields the input of each bundle of this partition: one bundle, unless state or spooled groups require more."""
    if task.input.form is Form.KEYED:
        yield from _keyed(cast("Iterator[Row]", found), bundles)
    elif task.input.form is Form.GROUPED:
        group = task.input.group
        assert group is not None
        kv_coder = bundles.context.coders.get_by_id(group.kv_coder_id)
        windowing = bundles.context.windowing_strategies.get_by_id(group.windowing_id)
        rows = cast("Iterator[Row]", found)
        elements = grouped(rows, group.grouping, kv_coder, windowing, spool)
        more = True
        while more:
            cut = _UntilSpooled(elements, spool)
            yield chunks(cut)
            more = cut.more
    else:
        yield cast("Iterator[bytes]", found)


class _UntilSpooled:
    """Yields elements up to the first whose group is on disk, so that the end of the bundle frees the disk."""

    def __init__(self, elements: Iterator[bytes], spool: Spool) -> None:
        self._elements = elements
        self._spool = spool
        self.more = False

    def __iter__(self) -> Iterator[bytes]:
        for element in self._elements:
            yield element
            if self._spool.used:
                self.more = True
                return


def _keyed(rows: Iterator[Row], bundles: Bundles) -> Iterator[Iterator[bytes]]:
    """Yields bundles of whole keys. A key's elements are together, so its state ends with the bundle."""
    keys = by_key(rows)

    def bundle(key_rows: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        while True:
            for value in key_rows:
                size += len(value)
                yield value
            if size >= _KEYED_BUNDLE_BYTES:
                return
            following = next(keys, None)
            if following is None:
                return
            key_rows = following[1]

    for _, key_rows in keys:
        yield bundle(key_rows)
        bundles.state.forget_keys()


def _input(task: StageTask, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes | Row]:
    """Yields chunks of encoded elements, or (key, value) rows, from Spark's batches."""
    if task.input.impulse:
        # Reads all batches: Spark does not reuse a worker that leaves input unread, and a new worker takes 0.3 s
        if sum(batch.num_rows for batch in batches):
            yield ENCODED_IMPULSE_VALUE
        return
    by_keys = task.input.form in (Form.GROUPED, Form.KEYED)
    for batch in batches:
        values = batch.column("value").to_pylist()
        yield from zip(batch.column("key").to_pylist(), values, strict=True) if by_keys else values


class recorded:
    """Collects the warnings of user code for the report: a worker raises them, and the driver shows them."""

    def __init__(self) -> None:
        self._found: list[Warned] = []
        self._catch = warnings.catch_warnings()

    def __enter__(self) -> list[Warned]:
        self._catch.__enter__()
        warnings.simplefilter("always")
        warnings.showwarning = self._show  # type: ignore[assignment]
        return self._found

    def __exit__(self, *error: Any) -> None:
        self._catch.__exit__(*error)

    def _show(self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        found = (str(message), f"{category.__module__}.{category.__qualname__}", filename, lineno)
        if found not in self._found:
            self._found.append(found)
