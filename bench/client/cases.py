"""The cases in which two sides do the same work, and their alternating repeats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.client.lab import Lab
from bench.common.config import JavaPull
from bench.common.report import say
from bench.common.rows import Row
from bench.common.tally import Tally, require_equal

JAVA_PULL: Final = "Java pull"
JAVA_SEND: Final = "Java batch send"
JAVA_SYNC: Final = "Java single send"
OUR_COPY: Final = "our copy, element by element"
OUR_CLIENT: Final = "our client"
"""The side that a layer above it is compared with, which shows the cost of that layer."""

JavaSettings = dict[int, JavaPull]
"""The settings that Java's consumer was fastest with, by message size."""
Outcome = tuple[float, Tally]
"""Seconds, and what was done in them."""


@dataclass(frozen=True, slots=True)
class Case:
    """One of our ways against one of Java's, or against our bare client."""

    name: str
    title: str
    ours: Callable[[Lab, int, bool], Outcome]
    """Lab, message size, whether this is the warm-up."""
    peer: str
    target: float | None
    sync: bool = False


def _java_pull(lab: Lab, size: int, settings: JavaPull) -> Outcome:
    topic = lab.loaded(size, lab.plan.messages)
    return _outcome(lab.java(f"pull {topic} {lab.plan.messages} {settings.words()}"))


def _java_send(lab: Lab, size: int) -> Outcome:
    plan, topic = lab.plan, lab.topic(f"java_send_{size}")
    before = lab.ends(topic)
    answer = lab.java(f"send {topic} {plan.messages} {size} {plan.batch} {plan.in_flight}")
    return answer["seconds"], lab.read_back(topic, before, Tally(answer["count"], answer["bytes"]))


def _java_sync(lab: Lab, size: int) -> Outcome:
    topic = lab.topic(f"java_sync_{size}")
    before = lab.ends(topic)
    answer = lab.java(f"sync {topic} {lab.plan.sync_messages} {size}")
    return answer["seconds"], lab.read_back(topic, before, Tally(answer["count"], answer["bytes"]))


def _pull(lab: Lab, size: int, warm_up: bool) -> Outcome:
    topic = lab.loaded(size, lab.plan.messages)
    return _outcome(lab.call("pull", "ours", "pull", topic=topic, count=lab.plan.messages))


def _send(lab: Lab, size: int, warm_up: bool) -> Outcome:
    plan, topic = lab.plan, lab.topic(f"ours_send_{size}")
    before = lab.ends(topic)
    answer = lab.call(
        "send", "ours", "send", topic=topic, count=plan.messages, size=size, batch=plan.batch, in_flight=plan.in_flight
    )
    return answer["seconds"], lab.read_back(topic, before, Tally(answer["count"], answer["bytes"]))


def _sync(lab: Lab, size: int, warm_up: bool) -> Outcome:
    topic = lab.topic(f"ours_sync_{size}")
    before = lab.ends(topic)
    answer = lab.call("sync", "ours", "sync", topic=topic, count=lab.plan.sync_messages, size=size)
    return answer["seconds"], lab.read_back(topic, before, Tally(answer["count"], answer["bytes"]))


def _read(lab: Lab, size: int, warm_up: bool, *, batches: bool) -> Outcome:
    topic = lab.loaded(size, lab.plan.messages)
    side = "read-batches" if batches else "read"
    if warm_up:
        return _outcome(lab.call(side, "ours_beam", "read_checked", topic=topic, batches=batches))
    return _outcome(lab.call(side, "ours_beam", "read_batches" if batches else "read", topic=topic))


def _read_elements(lab: Lab, size: int, warm_up: bool) -> Outcome:
    return _read(lab, size, warm_up, batches=False)


def _read_batches(lab: Lab, size: int, warm_up: bool) -> Outcome:
    return _read(lab, size, warm_up, batches=True)


def _pyspark(lab: Lab, size: int, warm_up: bool) -> Outcome:
    topic = lab.loaded(size, lab.plan.messages)
    return _outcome(lab.call("pyspark", "ours_pyspark", "read", topic=topic, checked=warm_up))


def _write(lab: Lab, size: int, with_sent: bool) -> Outcome:
    plan, side = lab.plan, "write" if with_sent else "write-no-sent"
    topic = lab.topic(f"ours_{side}_{size}")
    before = lab.ends(topic)
    answer = lab.call(
        side, "ours_beam", "write", topic=topic, count=plan.messages, size=size, batch=plan.batch,
        in_flight=plan.in_flight, with_sent=with_sent,
    )  # fmt: skip
    return answer["seconds"], lab.read_back(topic, before, Tally(answer["count"], answer["bytes"]))


def _write_sent(lab: Lab, size: int, warm_up: bool) -> Outcome:
    return _write(lab, size, with_sent=True)


def _write_quiet(lab: Lab, size: int, warm_up: bool) -> Outcome:
    return _write(lab, size, with_sent=False)


def _write_batches(lab: Lab, size: int, warm_up: bool) -> Outcome:
    plan, topic = lab.plan, lab.topic(f"ours_write-batches_{size}")
    before = lab.ends(topic)
    answer = lab.call(
        "write-batches", "ours_beam", "write_batches", topic=topic, count=plan.messages, size=size, batch=plan.batch,
        in_flight=plan.in_flight,
    )  # fmt: skip
    return answer["seconds"], lab.read_back(topic, before, Tally(answer["count"], answer["bytes"]))


def _copy(lab: Lab, size: int, *, batches: bool) -> Outcome:
    plan, side = lab.plan, "copy-batches" if batches else "copy"
    topic, sink = lab.loaded(size, plan.messages), lab.topic(f"ours_{side}_{size}")
    before = lab.ends(sink)
    answer = lab.call(
        side, "ours_beam", "copy", topic=topic, sink=sink, batch=plan.batch, in_flight=plan.in_flight, batches=batches
    )
    return answer["seconds"], lab.read_back(sink, before, Tally(plan.messages, plan.messages * size))


def _copy_batches(lab: Lab, size: int, warm_up: bool) -> Outcome:
    return _copy(lab, size, batches=True)


def _outcome(answer: dict[str, float]) -> Outcome:
    return answer["seconds"], Tally.from_answer(answer)


CASES: Final[Sequence[Case]] = (
    Case("pull", "pull, decoded to Record", _pull, JAVA_PULL, 2.0),
    Case("send", "batch send", _send, JAVA_SEND, 1.0),
    Case("sync", "single synchronous send", _sync, JAVA_SYNC, 1.0, sync=True),
    Case("read", "ReadFromRocketMQ | Count", _read_elements, JAVA_PULL, 0.6),
    Case("read-batches", "ReadFromRocketMQ(batches=True) | len | sum", _read_batches, JAVA_PULL, 1.0),
    Case("write", "WriteToRocketMQ", _write_sent, JAVA_SEND, 0.5),
    Case("write-no-sent", "WriteToRocketMQ(with_sent=False)", _write_quiet, JAVA_SEND, 0.5),
    Case("write-batches", "WriteToRocketMQ(batches=True), lists of 500", _write_batches, JAVA_SEND, 0.8),
    Case("copy-batches", "read batches, MapRecords, write batches", _copy_batches, OUR_COPY, 3.0),
    Case("pyspark", 'spark.read.format("rocketmq"), local[1]', _pyspark, OUR_CLIENT, 0.5),
)


def compare(lab: Lab, cases: Sequence[Case], size: int, java: JavaSettings) -> list[Row]:
    """Warm-ups, then `repeats` timed runs of each side, alternating; the order is turned round at each repeat.

    Raises `UnequalWork` when a case's two sides did not do the same, in any run.
    """
    peers: dict[str, Callable[[], Outcome]] = {
        JAVA_PULL: lambda: _java_pull(lab, size, java[size]),
        JAVA_SEND: lambda: _java_send(lab, size),
        JAVA_SYNC: lambda: _java_sync(lab, size),
        OUR_CLIENT: lambda: _pull(lab, size, False),
        OUR_COPY: lambda: _copy(lab, size, batches=False),
    }
    used = list(dict.fromkeys(case.peer for case in cases))
    sides = [*used, *(case.name for case in cases)]
    by_name = {case.name: case for case in cases}
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for repeat in range(1 - lab.plan.warm_ups, lab.plan.repeats + 1):
        warm_up = repeat < 1
        done: dict[str, Outcome] = {}
        for side in sides if repeat % 2 == 0 else reversed(sides):
            done[side] = peers[side]() if side in peers else by_name[side].ours(lab, size, warm_up)
            seconds, tally = done[side]
            if not warm_up:
                rates[side].append(tally.count / seconds)
                say(f"  {size} B, repeat {repeat}: {side} {tally.count / seconds:,.0f} msg/s")
        for case in cases:
            require_equal(f"{case.name}, {size} B", {"ours": done[case.name][1], case.peer: done[case.peer][1]})
    return [
        Row.ratio_of(case.title, size, rates[case.name], rates[case.peer], case.target, _note(lab, case))
        for case in cases
    ]


def _note(lab: Lab, case: Case) -> str:
    return f"{case.peer}, {lab.plan.sync_messages if case.sync else lab.plan.messages:,} messages"


def best_java_settings(lab: Lab, size: int, candidates: Sequence[JavaPull]) -> tuple[JavaPull, list[tuple[str, float]]]:
    """The fastest settings of Java's consumer: all candidates once on a warm JVM, the best three twice more.

    Also the best rate of each candidate, for the report.
    """
    say(f"looking for the best settings of Java's consumer, {size} B ...")
    _java_pull(lab, size, candidates[-1])
    rates: dict[JavaPull, list[float]] = {settings: [] for settings in candidates}

    def run(settings: JavaPull) -> None:
        seconds, tally = _java_pull(lab, size, settings)
        rates[settings].append(tally.count / seconds)
        say(f"  {size} B: {settings}: {tally.count / seconds:,.0f} msg/s")

    for settings in candidates:
        run(settings)
    finalists = sorted(candidates, key=lambda s: -rates[s][0])[:3]
    for _ in range(2):
        for settings in finalists:
            run(settings)
    best = max(finalists, key=lambda s: sorted(rates[s])[1])
    return best, [(str(settings), max(found)) for settings, found in rates.items()]
