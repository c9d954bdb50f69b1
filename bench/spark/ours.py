"""Our SparkRunner. Runs in a worker process; one session serves all runs, as in a notebook or a long-lived driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
from pyspark.sql import SparkSession

from bench.client.ours import Sums
from bench.spark.pipelines import BUILD, added_up
from bench.spark.settings import MASTER
from bench.spark.side import leave, prepare, spark_settings, timed
from rmqio import ReadFromRocketMQ, StartFrom, StopAt
from rmqio.model import Record
from rmqio.runners import options
from rmqio.runners.spark import SparkRunner

_flags: list[str] = []
"""For the first pipeline, which starts Spark; for the others most of these would come too late, and be refused."""


def start(folder: str) -> dict[str, Any]:
    """Called before anything else; the session itself starts with the first pipeline."""
    prepare()
    settings = spark_settings(Path(folder))
    del settings["spark.master"]  # the runner's own option has it
    _flags.extend([f"--spark_master_url={MASTER}", *(f"--spark_conf={name}={settings[name]}" for name in settings)])
    return {}


def run(name: str, elements: int) -> dict[str, Any]:
    """One of the pipelines, from building it to its end."""

    def pipeline(path: str) -> None:
        with _pipeline() as p:
            _ = BUILD[name](p, elements) | "Leave" >> beam.Map(leave, path)

    return timed(pipeline)


def read(name_server: str, topic: str, folder: str, checked: bool) -> dict[str, Any]:
    """`ReadFromRocketMQ | Count`; with `checked` all sums of `bench.common.tally.Tally` in place of the count."""
    if not _flags:
        start(folder)

    def pipeline(path: str) -> None:
        with _pipeline() as p:
            records = p | ReadFromRocketMQ(
                topic, name_server=name_server, start=StartFrom.earliest(), stop=StopAt.latest()
            )
            if checked:
                value = records | beam.Map(_sums) | beam.CombineGlobally(added_up)
            else:
                value = records | beam.combiners.Count.Globally()
            _ = value | "Leave" >> beam.Map(leave, path)

    done = timed(pipeline)
    if checked:
        return Sums(*done["result"]).answer(done["seconds"])
    return {"seconds": done["seconds"], "count": done["result"]}


def _pipeline() -> Any:
    flags = _flags if SparkSession.getActiveSession() is None else []
    return beam.Pipeline(runner=SparkRunner(), options=options(flags))


def _sums(record: Record) -> tuple[int, ...]:
    sums = Sums()
    sums.add(record.queue_id, [record])
    return sums.count, sums.bytes, sums.offsets, sums.crcs
