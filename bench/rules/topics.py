"""Topic to topic on the Direct runner: the same pipeline with and without rules, each in a process of its own.

`copy` reads, and writes each message. `copy and match` does the same, and writes what matches to another topic, too.
`match` writes only what matches. All process batches. The time of the same pipeline over an empty topic is subtracted.
After each run the topics must hold as many messages more as they must.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import apache_beam as beam

from bench.common.process import LineProcess
from bench.common.report import aligned
from bench.common.tally import UnequalWork
from bench.rules.events import few_events, few_rules
from bench.rules.sides import closures_run
from rmqio import ClientOptions, MapRecords, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.client import RemotingProducer, RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.rules import Match, MatchRules, RuleSet
from rmqio.runners import options

KINDS: Final = ("copy", "copy and match", "match")
LEAST_RATIO: Final = 0.75
MOST_MB: Final = 512
_QUEUES: Final = 4
_SETTLES_S: Final = 15.0


def same(record: Record) -> Record:
    return record


def alert(match: Match) -> Message:
    return Message(match.message.body, keys=(match.rule_id,), tags=match.level)


def run(kind: str, name_server: str, topic: str) -> float:
    """Seconds of one pipeline."""
    began = time.perf_counter()
    written: dict[str, Any] = {"name_server": name_server, "with_sent": False, "batches": True}
    with beam.Pipeline(options=options(["--runner=DirectRunner"])) as pipeline:
        records = pipeline | ReadFromRocketMQ(
            topic, name_server=name_server, batches=True, start=StartFrom.earliest(), stop=StopAt.latest()
        )
        if kind != "match":
            _ = records | "Same" >> MapRecords(same) | "Copy" >> WriteToRocketMQ("sink", **written)
        if kind != "copy":
            hits, _ = records | MatchRules(RuleSet.of(few_rules()), batches=True)
            _ = hits | "Alert" >> MapRecords(alert) | "Alerts" >> WriteToRocketMQ("alerts", **written)
    return time.perf_counter() - began


def serve(kind: str, name_server: str) -> None:
    """A child: runs a pipeline for each line that names a topic."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        seconds = run(kind, name_server, line.strip())
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        print(json.dumps({"seconds": seconds, "peak_mb": peak_mb}), flush=True)


def measure(count: int, repeats: int) -> list[dict[str, Any]]:
    """Returns the figures of each kind. Raises `UnequalWork`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(LocalRocketMQ())
        for topic in ("source", "empty", "sink", "alerts"):
            broker.create_topic(topic, queues=_QUEUES)
        hits = _fill(broker.name_server, count)
        client = stack.enter_context(closing(RemotingQueueClient(ClientOptions(broker.name_server))))
        children = {
            kind: stack.enter_context(
                LineProcess(
                    kind, [sys.executable, "-m", "bench.rules.topics", kind, broker.name_server], folder / "log"
                )
            )
            for kind in KINDS
        }
        start_up = {kind: min(child.ask("empty")["seconds"] for _ in range(3)) for kind, child in children.items()}
        rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
        peaks: dict[str, float] = {}
        for number in range(repeats + 1):
            for kind in KINDS if number % 2 else reversed(KINDS):
                before = _held(client)
                said = children[kind].ask("source")
                wanted = {"sink": 0 if kind == "match" else count, "alerts": 0 if kind == "copy" else hits}
                _check(kind, client, {topic: before[topic] + more for topic, more in wanted.items()})
                peaks[kind] = said["peak_mb"]
                if number:  # the first is to warm up
                    rates[kind].append(count / (said["seconds"] - start_up[kind]))
    found = []
    for kind in KINDS:
        ratios = [mine / theirs for mine, theirs in zip(rates[kind], rates["copy"], strict=True)]
        found.append({
            "kind": kind, "messages": count, "hits": hits, "rate": statistics.median(rates[kind]),
            "least": min(rates[kind]), "most": max(rates[kind]), "ratio": statistics.median(ratios),
            "least_ratio": min(ratios), "most_ratio": max(ratios), "start_up_s": start_up[kind], "peak_mb": peaks[kind],
        })  # fmt: skip
    return found


def rows(found: list[dict[str, Any]]) -> list[list[str]]:
    """The cells of a table, with its head."""
    lines = [["pipeline", "messages/s", "of copying", "peak MB", "start-up s", ""]]
    for each in found:
        verdict = ""
        if each["kind"] == "copy and match":
            verdict = "met" if each["ratio"] >= LEAST_RATIO and each["peak_mb"] <= MOST_MB else "MISSED"
        lines.append([
            each["kind"], f"{each['rate']:,.0f} ({each['least']:,.0f} to {each['most']:,.0f})",
            f"{each['ratio']:.2f} ({each['least_ratio']:.2f} to {each['most_ratio']:.2f})", f"{each['peak_mb']:.0f}",
            f"{each['start_up_s']:.1f}", verdict,
        ])  # fmt: skip
    return lines


def show(count: int, repeats: int) -> list[dict[str, Any]]:
    """Measures, prints and returns the figures."""
    found = measure(count, repeats)
    print(f"topics: 41 rules, {count:,} messages of about 300 bytes, {found[0]['hits']:,} hits", flush=True)
    print(aligned(rows(found), left={0, 5}), flush=True)
    return found


def _fill(name_server: str, count: int) -> int:
    """Fills the source. Returns how many hits its messages are."""
    matched = closures_run(few_rules(), with_re=False)
    events = few_events(count, True)
    hits = sum(map(len, matched(events)))
    with closing(RemotingProducer(ClientOptions(name_server), "bench-rules")) as producer:
        for at in range(0, count, 500):
            made = [Message(body, topic="source", keys=[str(at + n)]) for n, body in enumerate(events[at : at + 500])]
            producer.send_batch(made)
    return hits


def _held(client: RemotingQueueClient) -> dict[str, int]:
    return {topic: sum(client.max_offset(queue) for queue in client.queues(topic)) for topic in ("sink", "alerts")}


def _check(kind: str, client: RemotingQueueClient, wanted: dict[str, int]) -> None:
    until = time.monotonic() + _SETTLES_S  # the broker's index follows its log
    while (held := _held(client)) != wanted and time.monotonic() < until:
        time.sleep(0.1)
    if held != wanted:
        raise UnequalWork(f"{kind}: the topics hold {held}, and should hold {wanted}")


if __name__ == "__main__":
    # Under its own name, so that workers in this process find this module and not a copy.
    from bench.rules import topics

    topics.serve(sys.argv[1], sys.argv[2])
