"""The time that a stream takes from its start to its first results, beside the same stream by hand in PySpark.

python -m bench.streaming.start [--repeats 4]
python -m bench.streaming.start --steps [--repeats 3]    # by step: the JVM, the session, the first micro-batch ...

Each side is a program that copies a topic of 40 messages without end. The time runs from the start of the process until
all copies are in the sink, which is when the first micro-batch has written. Then the program gets SIGINT. The sides
take turns; the first two pairs are to warm up. With --steps, both have one more function, which notes when a worker has
the first message.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from bench.common.report import aligned, machine_text
from bench.start import stamps
from bench.start.steps import UP_TO_THE_SESSION, WARM_UP, Steps, durations, of_steps
from rmqio import ClientOptions, Message
from rmqio.client import RemotingProducer, RemotingQueueClient
from rmqio.local import LocalRocketMQ

_HEAD: Final = ("side", "seconds", "ratio to the handwritten stream", "target")
_COUNT: Final = 40
_TARGET: Final = "0.8"
_TIMEOUT_S: Final = 120.0
OURS: Final = "SparkRunner --streaming"
BY_HAND: Final = "handwritten in PySpark"


STEPS: Final[Steps] = (
    *UP_TO_THE_SESSION,
    ("the query, and its first micro-batch up to its first Python worker", "session", "worker"),
    ("imports in the worker, the read, up to the first message", "worker", "element"),
    ("the write, up to the last copy in the sink", "element", "done"),
)


def ours(name_server: str, source: str, sink: str, folder: str) -> None:
    import apache_beam as beam

    from rmqio import ReadFromRocketMQ, StartFrom, WriteToRocketMQ

    _mark("imported")
    from rmqio.runners import options

    flags = ["--runner=SparkRunner", "--streaming", f"--checkpoint_dir={folder}", "--spark_master_url=local[2]"]
    given = options(flags)
    if _marks():
        from rmqio.runners.spark import runner

        _mark("options")
        _mark_spark()
        stamps.marked(runner, "session_for", end="session")
    with beam.Pipeline(options=given) as pipeline:
        records = pipeline | ReadFromRocketMQ(source, name_server=name_server, start=StartFrom.earliest())
        if _marks():
            records = records | beam.Map(stamps.in_worker)
        _ = records | WriteToRocketMQ(sink, name_server=name_server, with_sent=False)


def by_hand(name_server: str, source: str, sink: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    _mark("imported")
    _mark("options")
    if _marks():
        _mark_spark()
    session = SparkSession.builder.master("local[2]").getOrCreate()
    _mark("session")
    at = {"nameServer": name_server}
    stream = session.readStream.format("rocketmq").options(**at, subscribe=source, startingOffsets="earliest").load()
    bodies = stream.select("body")
    if _marks():
        bodies = bodies.mapInArrow(lambda batches: map(stamps.in_worker, batches), "body binary")
    writer = bodies.writeStream.format("rocketmq").options(**at, topic=sink, checkpointLocation=folder)
    writer.start().awaitTermination()


def _marks() -> bool:
    return stamps.FILE in os.environ


def _mark(name: str) -> None:
    if _marks():
        stamps.mark(name)


def _mark_spark() -> None:
    from pyspark import SparkContext

    stamps.marked(sys.modules[SparkContext.__module__], "launch_gateway", begin="jvm", end="gateway")
    stamps.marked(SparkContext, "_do_init", end="context")


SIDES: Final[dict[str, Any]] = {OURS: ours, BY_HAND: by_hand}


def seconds(client: RemotingQueueClient, name_server: str, side: str, sink: str, marks: Path | None = None) -> float:
    """Seconds until the sink holds all copies. `marks`: the file for the moments of the program's steps."""
    with tempfile.TemporaryDirectory(prefix="rmqio-bench-") as folder:
        program = [sys.executable, "-m", "bench.streaming.start", "--side", side, name_server, "source", sink, folder]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path.cwd())}
        if marks is not None:
            environment[stamps.FILE] = str(marks)
        began = time.perf_counter()
        process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
        try:
            while sum(client.max_offset(queue) for queue in client.queues(sink)) < _COUNT:
                if process.poll() is not None or time.perf_counter() - began > _TIMEOUT_S:
                    process.kill()
                    raise RuntimeError(f"{side}: {process.communicate()[1].decode()[-3000:]}")
                time.sleep(0.02)
            return time.perf_counter() - began
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.streaming.start", description=__doc__)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--steps", action="store_true", help="show where the time goes")
    parser.add_argument("--side", nargs=5, metavar=("SIDE", "NAME_SERVER", "SOURCE", "SINK", "FOLDER"))
    given = parser.parse_args(argv)
    if given.side:
        if _marks():
            stamps.mark("begin", stamps.started(os.getpid()))
            stamps.mark("python")
        SIDES[given.side[0]](*given.side[1:])
        return
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    steps: dict[str, list[list[float]]] = {side: [] for side in SIDES}
    with LocalRocketMQ() as broker, closing(RemotingQueueClient(ClientOptions(broker.name_server))) as client:
        broker.create_topic("source", queues=4)
        with RemotingProducer(ClientOptions(broker.name_server), "start") as producer:
            for queue in producer.queues("source"):
                producer.send_batch([Message(b"x", topic="source")] * (_COUNT // 4), queue)
        for number in range(given.repeats + WARM_UP):
            for side in SIDES if number % 2 else reversed(SIDES):
                sink = f"sink-{number}-{list(SIDES).index(side)}"
                broker.create_topic(sink, queues=1)
                with tempfile.TemporaryDirectory(prefix="rmqio-bench-") as folder:
                    marks = Path(folder, "marks") if given.steps else None
                    found[side].append(seconds(client, broker.name_server, side, sink, marks))
                    if marks is not None and number >= WARM_UP:
                        steps[side].append(durations({**stamps.read(marks), "done": stamps.now()}, STEPS))
    if given.steps:
        print(f"Machine: {machine_text()}. {given.repeats} repeats.")
        print(of_steps(steps, STEPS))
        return
    lines = []
    for side, times in found.items():
        ratios = sorted(mine / other for mine, other in zip(times[WARM_UP:], found[BY_HAND][WARM_UP:], strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})" if side == OURS else ""
        counted = times[WARM_UP:]
        shown = f"{statistics.median(counted):.1f} ({min(counted):.1f}..{max(counted):.1f})"
        lines.append([side, shown, spread, _TARGET if side == OURS else ""])
    print(f"Machine: {machine_text()}. {given.repeats} repeats.")
    print(aligned([_HEAD, *lines], left={0}))


if __name__ == "__main__":
    assert Path("bench").exists(), "run it in the repository's folder"
    main()
