"""The time that a stream takes from its start to its first results, beside the same stream by hand in PySpark.

python -m bench.streaming.start [--repeats 4]

Each side is a program that copies a topic of 40 messages without end. The time runs from the start of the process until
all copies are in the sink, which is when the first micro-batch has written. Then the program gets SIGINT. The sides
take turns; the first pair is to warm up.
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

from bench.report import aligned, machine_text
from rmqio import ClientOptions, Message
from rmqio.client import RemotingProducer, RemotingQueueClient
from rmqio.local import LocalRocketMQ

_HEAD: Final = ("side", "seconds", "ratio to the handwritten stream", "target")
_COUNT: Final = 40
_TARGET: Final = "0.8"
_TIMEOUT_S: Final = 120.0
OURS: Final = "SparkRunner --streaming"
BY_HAND: Final = "handwritten in PySpark"


def ours(name_server: str, source: str, sink: str, folder: str) -> None:
    import apache_beam as beam

    from rmqio import ReadFromRocketMQ, StartFrom, WriteToRocketMQ
    from rmqio.runners import options

    flags = ["--runner=SparkRunner", "--streaming", f"--checkpoint_dir={folder}", "--spark_master_url=local[2]"]
    with beam.Pipeline(options=options(flags)) as pipeline:
        records = pipeline | ReadFromRocketMQ(source, name_server=name_server, start=StartFrom.earliest())
        _ = records | WriteToRocketMQ(sink, name_server=name_server, with_sent=False)


def by_hand(name_server: str, source: str, sink: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").getOrCreate()
    at = {"nameServer": name_server}
    stream = session.readStream.format("rocketmq").options(**at, subscribe=source, startingOffsets="earliest").load()
    writer = stream.select("body").writeStream.format("rocketmq").options(**at, topic=sink, checkpointLocation=folder)
    writer.start().awaitTermination()


SIDES: Final[dict[str, Any]] = {OURS: ours, BY_HAND: by_hand}


def seconds(client: RemotingQueueClient, name_server: str, side: str, sink: str) -> float:
    """Seconds until the sink holds all copies."""
    with tempfile.TemporaryDirectory(prefix="rmqio-bench-") as folder:
        program = [sys.executable, "-m", "bench.streaming.start", "--side", side, name_server, "source", sink, folder]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
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
    parser.add_argument("--side", nargs=5, metavar=("SIDE", "NAME_SERVER", "SOURCE", "SINK", "FOLDER"))
    given = parser.parse_args(argv)
    if given.side:
        SIDES[given.side[0]](*given.side[1:])
        return
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    with LocalRocketMQ() as broker, closing(RemotingQueueClient(ClientOptions(broker.name_server))) as client:
        broker.create_topic("source", queues=4)
        with RemotingProducer(ClientOptions(broker.name_server), "start") as producer:
            for queue in producer.queues("source"):
                producer.send_batch([Message(b"x", topic="source")] * (_COUNT // 4), queue)
        for number in range(given.repeats + 1):
            for side in SIDES if number % 2 else reversed(SIDES):
                sink = f"sink-{number}-{list(SIDES).index(side)}"
                broker.create_topic(sink, queues=1)
                found[side].append(seconds(client, broker.name_server, side, sink))
    lines = []
    for side, times in found.items():
        ratios = sorted(mine / other for mine, other in zip(times[1:], found[BY_HAND][1:], strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})" if side == OURS else ""
        shown = f"{statistics.median(times[1:]):.1f} ({min(times[1:]):.1f}..{max(times[1:]):.1f})"
        lines.append([side, shown, spread, _TARGET if side == OURS else ""])
    print(f"Machine: {machine_text()}. {given.repeats} repeats.")
    print(aligned([_HEAD, *lines], left={0}))


if __name__ == "__main__":
    assert Path("bench").exists(), "run it in the repository's folder"
    main()
