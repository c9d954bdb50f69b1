"""The command line: `python -m bench.streaming`.

`--what windows`, the default, counts in windows; `state` counts in state; `totals` runs `windowed_orders.py` as it is,
and the same in SQL. Each side runs as its own program, on a small topic and on a large one. The throughput is the
number of additional messages in the large topic, divided by the additional time. This leaves out the start of Spark or
Flink, which is most of the time on the small topic.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.common.report import BUSY_WARNING, aligned
from bench.common.tally import BenchError
from bench.streaming import totals
from bench.streaming.orders import Load, check, check_counts, load, plain
from rmqio.local import LocalRocketMQ
from rmqio.runners.flink import JobServer

_ROOT: Final = Path(__file__).resolve().parents[2]
_TIMEOUT_S: Final = 1_200
_SPARK: Final = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_PER_TRIGGER: Final = 200_000
"""The most messages of a micro-batch, on all sides."""
Side = Callable[[LocalRocketMQ, Load, str, Path], Sequence[str]]
"""The command that runs a side: broker, input, topic for the totals, a folder of its own."""

Checked = Callable[[LocalRocketMQ, str, Load], int]
"""Looks at what a side has made of its input, and counts it."""


def spark(broker: LocalRocketMQ, given: Load, sink: str, folder: Path) -> Sequence[str]:
    program = ("-m", "bench.streaming.windowed", broker.name_server, given.topic, sink)
    return [*program, *_our_flags(folder)]


def batches(broker: LocalRocketMQ, given: Load, sink: str, folder: Path) -> Sequence[str]:
    program = ("-m", "bench.streaming.windowed_batches", broker.name_server, given.topic, sink)
    return [*program, *_our_flags(folder)]


def sql(broker: LocalRocketMQ, given: Load, sink: str, folder: Path) -> Sequence[str]:
    program = ("-m", "bench.streaming.sql", broker.name_server, given.topic, sink, str(folder))
    return [*program, *_our_flags(folder / "checkpoint")]


def stateful(broker: LocalRocketMQ, given: Load, sink: str, folder: Path) -> Sequence[str]:
    each = str(given.messages // given.keys)
    program = ("-m", "bench.streaming.stateful", "beam", broker.name_server, given.topic, sink, each)
    return [*program, *_our_flags(folder)]


def stateful_by_hand(broker: LocalRocketMQ, given: Load, sink: str, folder: Path) -> Sequence[str]:
    each = str(given.messages // given.keys)
    program = ("-m", "bench.streaming.stateful", "hand", broker.name_server, given.topic, sink, each, str(folder))
    return [*program, *(f"{name}={value}" for name, value in _SPARK.items())]


def pipeline(broker: LocalRocketMQ, given: Load, sink: str, folder: Path) -> Sequence[str]:
    program = (str(_ROOT / "pipelines/windowed_orders.py"), f"--name_server={broker.name_server}", "--start=earliest")
    topics = (f"--source_topic={given.topic}", f"--sink_topic={sink}", "--stop=latest")
    return [*program, *topics, *_our_flags(folder)]


def totals_sql(broker: LocalRocketMQ, given: Load, sink: str, folder: Path) -> Sequence[str]:
    program = ("-m", "bench.streaming.totals", broker.name_server, given.topic, sink, str(folder))
    return [*program, *_our_flags(folder / "checkpoint")]


def _our_flags(folder: Path) -> Sequence[str]:
    master, *settings = [f"{name}={value}" for name, value in _SPARK.items()]
    flags = [f"--spark_conf={each}" for each in settings]
    flags += [f"--spark_master_url={master.partition('=')[2]}", f"--checkpoint_dir={folder}"]
    return ["--runner=SparkRunner", "--streaming", f"--max_records_per_trigger={_PER_TRIGGER}", *flags]


def handwritten(broker: LocalRocketMQ, given: Load, sink: str, folder: Path) -> Sequence[str]:
    settings = [f"{name}={value}" for name, value in _SPARK.items()]
    program = ("-m", "bench.streaming.handwritten", broker.name_server, given.topic, sink)
    return [*program, str(folder), str(_PER_TRIGGER), *settings]


def flink_on(server: JobServer) -> Side:
    def flink(broker: LocalRocketMQ, given: Load, sink: str, folder: Path) -> Sequence[str]:
        program = ("-m", "bench.streaming.windowed", broker.name_server, given.topic, sink)
        # With checkpoints Flink keeps a job whose sources have ended for good, unless it is told to let it end
        flags = ("--streaming", "--parallelism=2", "--checkpointing_interval=10000")
        return [*program, *flags, "--shutdown_sources_after_idle_ms=1000", *server.flags]

    return flink


def seconds(side: Side, broker: LocalRocketMQ, given: Load, checked: Checked) -> float:
    """Runs a side once. Raises `BenchError` if it fails, `UnequalWork` if its totals are not those of the input."""
    sink = f"totals-{uuid.uuid4().hex[:12]}"
    broker.create_topic(sink, queues=2)
    with tempfile.TemporaryDirectory(prefix="rmqio-bench-") as folder, tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, *side(broker, given, sink, Path(folder))]
        environment = os.environ | {
            "PYTHONPATH": str(_ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=_ROOT, env=environment)
        try:
            status = process.wait(_TIMEOUT_S)
        except BaseException:
            process.kill()
            process.wait()
            raise
        took = time.perf_counter() - began
        if status:
            log.seek(0)
            raise BenchError(f"{' '.join(command)} ended with status {status}:\n{log.read()[-3000:]}")
    totals = checked(broker, sink, given)
    print(f"  {given.messages:>9,} messages, {totals:>9,} totals: {took:6.1f} s", file=sys.stderr, flush=True)
    return took


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.streaming", description=__doc__.partition("\n\n")[2])
    parser.add_argument("--what", choices=["windows", "state", "totals"], default="windows")
    parser.add_argument("--messages", type=int, default=2_500_000)
    parser.add_argument("--small", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keys", type=int, nargs="*", default=[5_000, 100_000])
    parser.add_argument("--sides", nargs="*", choices=["spark", "batches", "sql", "handwritten", "flink"])
    given = parser.parse_args(arguments)
    load_average = os.getloadavg()[0]
    in_state = given.what == "state"
    names = given.sides or ["spark", "batches", "sql", "handwritten", "flink"]
    checked, body = check, plain
    if in_state:
        names, checked = ["spark", "handwritten"], check_counts
    elif given.what == "totals":
        names, checked, body = ["spark", "sql"], totals.check, totals.order
    cells = [["keys", "side", "messages/s", "spread", "ratio to spark"]]
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(LocalRocketMQ())
        sides: dict[str, Side] = {"spark": spark, "batches": batches, "sql": sql, "handwritten": handwritten}
        if in_state:
            sides = {"spark": stateful, "handwritten": stateful_by_hand}
        elif given.what == "totals":
            sides = {"spark": pipeline, "sql": totals_sql}
        elif "flink" in names:
            sides["flink"] = flink_on(stack.enter_context(JobServer()))
        for keys in given.keys:
            few, many = (max(1, count // keys) * keys if in_state else count for count in (given.small, given.messages))
            small = load(broker, f"orders-{keys}-small", few, keys, in_state, body)
            large = load(broker, f"orders-{keys}-large", many, keys, in_state, body)
            rates: dict[str, list[float]] = {name: [] for name in names}
            for repeat in range(given.repeats):
                for name in names:
                    print(f"{keys:,} keys, {name}, repeat {repeat + 1} of {given.repeats}", file=sys.stderr, flush=True)
                    base = seconds(sides[name], broker, small, checked)
                    took = seconds(sides[name], broker, large, checked)
                    rates[name].append((large.messages - small.messages) / max(took - base, 0.001))
            for name in names:
                ratios = [ours / peer for ours, peer in zip(rates["spark"], rates[name], strict=True)]
                cells.append([f"{keys:,}", name, *_told(rates[name], "{:,.0f}"), " ".join(_told(ratios, "{:.2f}"))])
    print(aligned(cells, left={1}))
    if load_average > 0.5:
        print(BUSY_WARNING.format(load_average).strip("*"))
    return 0


def _told(values: Sequence[float], pattern: str) -> tuple[str, str]:
    low, high = pattern.format(min(values)), pattern.format(max(values))
    return pattern.format(statistics.median(values)), f"({low}..{high})"


if __name__ == "__main__":
    sys.exit(main())
