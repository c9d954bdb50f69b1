"""The cases without a peer: memory, idle cost, latency, and Beam's own start-up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

from bench.client.lab import Lab
from bench.common.config import TOPIC_QUEUES
from bench.common.report import say
from bench.common.rows import Row
from bench.common.tally import BenchError

MEMORY_LIMIT_MB: Final = 300.0
GROWTH_LIMIT_MB: Final = 10.0
"""The limit of "flat": the growth between a fifth of the messages and all of them."""
IDLE_LIMIT_PERCENT: Final = 3.0
LATENCY_LIMIT_MS: Final = 100.0
_SIZE: Final = 100


def memory(lab: Lab) -> list[Row]:
    """The resident set of a fresh process that reads many messages: with the client alone, and in a pipeline."""
    count = lab.plan.memory_messages
    topic = lab.loaded(_SIZE, count)
    say(f"memory of a reader over {count:,} messages ...")
    answer = lab.call("memory", "ours", "pull", topic=topic, count=count, memory_every=count // 100)
    _require_count("memory", count, answer)
    client = [(done / len(answer["rss_mb"]), mb) for done, mb in enumerate(answer["rss_mb"], 1)]
    answer = lab.call("memory-beam", "ours_beam", "read_memory", topic=topic, expected=count)
    _require_count("memory of the pipeline", count, answer)
    rows = [*_memory_rows("reader", client, count), *_memory_rows("pipeline", answer["samples"], count)]
    lab.end("memory")
    lab.end("memory-beam")
    return rows


def growth_mb(samples: Sequence[Sequence[float]]) -> float:
    """By how much the peak behind a fifth of the way exceeds what was in use at a fifth. Samples: (part done, MB)."""
    at_a_fifth = max((mb for part, mb in samples if part <= 0.2), default=0.0)
    later = max((mb for part, mb in samples if part > 0.2), default=0.0)
    return max(0.0, later - at_a_fifth)


def _memory_rows(who: str, samples: Sequence[Sequence[float]], count: int) -> list[Row]:
    note = f"{count:,} messages"
    peak = max(mb for _, mb in samples)
    return [
        Row.limit_of(f"memory, {who}: peak", _SIZE, [peak], "MB", MEMORY_LIMIT_MB, note),
        Row.limit_of(f"memory, {who}: growth", _SIZE, [growth_mb(samples)], "MB", GROWTH_LIMIT_MB, "20 % to 100 %"),
    ]


def idle(lab: Lab) -> list[Row]:
    """An unbounded read of idle queues on the in-process runner: CPU time used, in per cent of one core."""
    plan = lab.plan
    topic = lab.topic("idle")
    say(f"idle read of {TOPIC_QUEUES} queues for {plan.idle_seconds:g} s ...")
    lab.call("idle", "endless", "start", topic=topic, arrivals=str(lab.folder / "idle.txt"))
    time.sleep(plan.settle_seconds)
    answer = lab.call_plain("idle", "cpu", seconds=plan.idle_seconds)
    lab.end("idle")
    percent = 100 * answer["cpu_seconds"] / answer["wall_seconds"]
    note = f"{TOPIC_QUEUES} queues, {plan.idle_seconds:g} s, FnApiRunner"
    return [Row.limit_of("idle unbounded read", 0, [percent], "% of a core", IDLE_LIMIT_PERCENT, note)]


def latency(lab: Lab) -> list[Row]:
    """Seven idle queues and a busy one: from before the send to the DoFn behind the read."""
    rows = _latency(lab, "FnApiRunner", ())
    for runner in lab.plan.runners:
        rows += _latency(lab, runner, (f"--runner={runner}", "--streaming"))
    return rows


def _latency(lab: Lab, title: str, runner: Sequence[str]) -> list[Row]:
    plan, topic = lab.plan, lab.topic(f"latency_{title}")
    say(f"latency on {title}, a message each {plan.tick_ms} ms ...")
    arrivals, side = lab.folder / f"latency-{title}.txt", f"latency-{title}"
    lab.call(side, "endless", "start", topic=topic, arrivals=str(arrivals), runner=runner)
    _tick(lab, topic, 1)
    deadline = time.monotonic() + 120  # Spark and Flink need a while to come up
    while _lines(arrivals) < 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(plan.settle_seconds)
    _tick(lab, topic, plan.ticks)
    deadline = time.monotonic() + 10
    while _lines(arrivals) < plan.ticks + 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    lab.call_plain(side, "cpu", seconds=0.0)  # raises when the pipeline has failed
    lab.end(side)
    if _lines(arrivals) != plan.ticks + 1:
        raise BenchError(f"latency on {title}: {plan.ticks + 1} messages were sent, {_lines(arrivals)} arrived")
    found = sorted(int(line) / 1e6 for line in arrivals.read_text().splitlines()[1:])
    note = f"{TOPIC_QUEUES - 1} idle queues, one busy, {len(found)} messages"
    at = statistics.quantiles(found, n=100, method="inclusive")
    return [
        Row.limit_of(f"latency on {title}: median", 0, [at[49]], "ms", None, note),
        Row.limit_of(f"latency on {title}: 99 %", 0, [at[98]], "ms", None, note),
        Row.limit_of(f"latency on {title}: maximum", 0, [found[-1]], "ms", LATENCY_LIMIT_MS, note),
    ]


def _tick(lab: Lab, topic: str, count: int) -> None:
    lab.call(
        "ticks", "ours", "send_ticks", topic=topic, broker=lab.broker.name, queue_id=3, count=count,
        every_ms=lab.plan.tick_ms,
    )  # fmt: skip


def _lines(path: Any) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def start_up(lab: Lab) -> list[Row]:
    """Measures a pipeline that has nothing to do: its cost is part of every figure of the transforms."""
    topic = lab.topic("empty")
    say("start-up of Beam ...")
    rows = []
    writing: dict[str, Any] = {"count": 0, "size": 100, "batch": 1, "in_flight": 1, "with_sent": True}
    for title, function, arguments in (
        ("start-up of a read pipeline", "read", {}),
        ("start-up of a write pipeline", "write", writing),
    ):
        seconds = [
            lab.call("start-up", "ours_beam", function, topic=topic, **arguments)["seconds"]
            for _ in range(lab.plan.repeats + 1)
        ]
        rows.append(Row.limit_of(title, 0, [1000 * s for s in seconds[1:]], "ms", None, "warm, FnApiRunner"))
    lab.end("start-up")
    return rows


def _require_count(name: str, expected: int, answer: dict[str, Any]) -> None:
    if answer["count"] != expected:
        raise BenchError(f"{name}: {expected} messages are in the topic, {answer['count']} were read")
