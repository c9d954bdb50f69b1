"""Draws the pictures of the documentation: `python -m docs.tools.draw` writes docs/images/*.svg."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from docs.tools.svg import Picture

FOLDER: Final = Path(__file__).parents[1] / "images"


def overview() -> Picture:
    """Broker, transforms, runners."""
    picture = Picture(
        640,
        378,
        "rmqio in one picture",
        "ReadFromRocketMQ pulls from RocketMQ's brokers, your transforms follow, WriteToRocketMQ sends batches back to "
        "the brokers. SparkRunner, FlinkRunner or DirectRunner runs the pipeline.",
    )
    picture.box("broker", 20, 20, 600, 62, "Apache RocketMQ", "name servers, brokers, topics and their queues")
    picture.arrow((125, 82), (125, 162))
    picture.small(137, 112, "pulls, in order per queue", "start")
    picture.arrow((515, 162), (515, 82))
    picture.small(503, 112, "batches per queue", "end")
    picture.frame(20, 130, 600, 118, "")
    picture.small(320, 149, "one Apache Beam pipeline, in Python")
    picture.box("ours", 38, 162, 182, 68, "ReadFromRocketMQ", "records, event time")
    picture.arrow((220, 196), (246, 196))
    picture.box("yours", 246, 162, 148, 68, "your transforms", "windows, state, joins")
    picture.arrow((394, 196), (420, 196))
    picture.box("ours", 420, 162, 182, 68, "WriteToRocketMQ", "keys, tags, order")
    picture.small(320, 276, "runs on one of these, unchanged")
    for at, (name, line) in enumerate(
        [
            ("SparkRunner", "PySpark, batch and streams"),
            ("FlinkRunner", "starts its own, or a cluster"),
            ("DirectRunner", "in this process"),
        ]
    ):
        picture.box("runner", 20 + 205 * at, 290, 190, 68, name, line)
    return picture


def message() -> Picture:
    """The life of a message."""
    picture = Picture(
        640,
        540,
        "The life of a message",
        "Down the left side: a broker's queue, the reader, the decoder, the splittable DoFn, the DoFn that takes "
        "batches apart. At the bottom: your transforms. Up the right side: the writing DoFn, the accumulator, the "
        "sender, the producer, a broker's queue.",
    )
    picture.small(160, 26, "read")
    picture.small(480, 26, "write")
    read = [
        ("broker", "a queue of the broker", "32 messages an answer"),
        ("ours", "PipelinedReader", "`client/reader.py`"),
        ("ours", "decode_records", "`wire/stored.py`"),
        ("ours", "ReadQueueFn", "`transforms/reading/read_fn.py`"),
        ("ours", "UnbatchFn", "`transforms/reading/record_batches.py`"),
    ]
    write = [
        ("broker", "a queue of the broker", "acknowledged, with an offset"),
        ("ours", "RemotingProducer", "`client/producer.py`"),
        ("ours", "BatchSender", "`sending/batches.py`"),
        ("ours", "BatchAccumulator", "`sending/accumulator.py`"),
        ("ours", "WriteFn", "`transforms/writing/write_fn.py`"),
    ]
    for at, (kind, name, line) in enumerate(read):
        picture.box(kind, 20, 38 + 84 * at, 284, 58, name, line)
        picture.arrow((162, 96 + 84 * at), (162, 122 + 84 * at))
    for at, (kind, name, line) in enumerate(write):
        picture.box(kind, 336, 38 + 84 * at, 284, 58, name, line)
        picture.arrow((478, 122 + 84 * at), (478, 96 + 84 * at))
    picture.box("yours", 20, 458, 600, 62, "your transforms", "elements with a timestamp and a window; your coders")
    return picture


def group() -> Picture:
    """The life of a GroupByKey."""
    picture = Picture(
        640,
        452,
        "The life of a GroupByKey",
        "Two tasks of the stage before the GroupByKey write rows of bucket, key and a run of values. Spark's shuffle "
        "brings the rows of a bucket together and sorts them by key. A task of the next stage joins the runs of a key.",
    )
    for x, name, rows in (
        (20, "stage A, task 1", ["`bucket 0, key a, run [1, 2]`", "`bucket 1, key b, run [3]`"]),
        (330, "stage A, task 2", ["`bucket 0, key a, run [4]`", "`bucket 1, key c, run [5, 6]`"]),
    ):
        picture.box(
            "ours",
            x,
            20,
            290,
            116,
            name,
            "`worker/writing.py`",
            "one row holds a key and a run of values",
            *rows,
        )
        picture.arrow((x + 145, 136), (x + 145, 174))
    picture.box(
        "runner",
        20,
        174,
        600,
        74,
        "Spark's shuffle",
        "repartitionById(bucket), sortWithinPartitions(key, value)",
        "`execution.py`",
    )
    for x, name, rows in (
        (20, "stage B, bucket 0", ["`a: [1, 2] + [4]`"]),
        (330, "stage B, bucket 1", ["`b: [3]   c: [5, 6]`"]),
    ):
        picture.arrow((x + 145, 248), (x + 145, 286))
        picture.box("ours", x, 286, 290, 96, name, "`worker/shuffling.py`", "joins runs, decodes nothing", *rows)
    picture.box("yours", 20, 404, 600, 34, "your DoFn gets (key, iterable)")
    picture.arrow((165, 382), (165, 404))
    picture.arrow((475, 382), (475, 404))
    return picture


def micro_batch() -> Picture:
    """The life of a micro-batch."""
    picture = Picture(
        640,
        622,
        "The life of a micro-batch",
        "A planning process plans the ranges and the clock; Spark writes that offset to its log. Level 0 reads the "
        "ranges. Later levels keep state per bucket. Reports reach the driver. Spark commits. Then finalizers run, "
        "group offsets are committed, and the next micro-batch is planned from where this one ended.",
    )
    steps = [
        (
            "ours",
            "plan",
            "`streaming/source.py, transforms/reading/planned.py`",
            "ranges of each queue, and the clock",
        ),
        ("runner", "Spark's offset log", "`CHECKPOINT/offsets/N`", "from here on, a repeat reads the same"),
        (
            "ours",
            "level 0: read",
            "`streaming/worker.py, transforms/reading/planned.py`",
            "each task reads some of the ranges; its rows go to buckets",
        ),
        (
            "ours",
            "levels 1, 2, ...: group, state, timers",
            "`streaming/stateful.py, streaming/worker.py`",
            "first the data, then the watermark; state in RocksDB",
        ),
        ("ours", "reports to the driver", "`streaming/execution.py`", "cuts are kept before Spark commits"),
        ("runner", "Spark's commit", "`CHECKPOINT/commits/N`", "state and position are now final"),
        (
            "ours",
            "settle",
            "`streaming/execution.py, transforms/reading/commits.py`",
            "bundle finalizers, metrics, group offsets",
        ),
    ]
    for at, (kind, name, code, line) in enumerate(steps):
        picture.box(kind, 70, 20 + 86 * at, 550, 66, name, code, line)
        if at:
            picture.arrow((345, 86 * at), (345, 20 + 86 * at))
    picture.arrow((70, 569), (36, 569), (36, 53), (70, 53))
    picture.small(36, 45, "N+1")
    return picture


PICTURES: Final[Mapping[str, Callable[[], Picture]]] = {
    "overview.svg": overview,
    "life-of-a-message.svg": message,
    "life-of-a-groupbykey.svg": group,
    "life-of-a-micro-batch.svg": micro_batch,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(str(draw()))


if __name__ == "__main__":
    main()
