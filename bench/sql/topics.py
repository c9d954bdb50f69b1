"""From topic to topic: whole jobs, in messages per second."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

import apache_beam as beam

from bench.common.tally import UnequalWork
from bench.copying import held, same
from bench.sql.statements import EIGHT, FILTER, TABLES, Body, bodies, filter_by_hand
from rmqio import ClientOptions, MapRecords, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.client import RemotingQueueClient
from rmqio.local import LocalRocketMQ
from rmqio.runners import options
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script

_QUEUES: Final = 4
_SETTLES_S: Final = 10.0


def by_sql(pipeline: beam.Pipeline, name_server: str, source: str) -> None:
    script = Script()
    script.run(TABLES + FILTER.format(source=source))
    connection = Connection(name_server=name_server, start=StartFrom.earliest(), stop=StopAt.latest())
    Translation(pipeline, connection).add_all(script.sinks)


def by_copy(pipeline: beam.Pipeline, name_server: str, source: str) -> None:
    read = ReadFromRocketMQ(
        source, name_server=name_server, batches=True, start=StartFrom.earliest(), stop=StopAt.latest()
    )
    write = WriteToRocketMQ("sink", name_server=name_server, with_sent=False, batches=True)
    _ = pipeline | read | MapRecords(same) | write


def filtered(record: Record) -> Iterator[Message]:
    for body in filter_by_hand((Body(record.body),)):
        yield Message(body)


def by_elements(pipeline: beam.Pipeline, name_server: str, source: str) -> None:
    read = ReadFromRocketMQ(source, name_server=name_server, start=StartFrom.earliest(), stop=StopAt.latest())
    write = WriteToRocketMQ("sink", name_server=name_server, with_sent=False)
    _ = pipeline | read | beam.FlatMap(filtered).with_output_types(Message) | write


def by_eight(pipeline: beam.Pipeline, name_server: str, source: str) -> None:
    by_statements(pipeline, name_server, [each.format(source=source) for each in EIGHT])


def by_statements(pipeline: beam.Pipeline, name_server: str, statements: Sequence[str]) -> None:
    script = Script()
    script.run(TABLES + ";".join(statements))
    connection = Connection(name_server=name_server, start=StartFrom.earliest(), stop=StopAt.latest())
    Translation(pipeline, connection).add_all(script.sinks)


def eight_jobs(runner: str, count: int, repeats: int) -> list[list[str]]:
    """A line for eight statements as one job, and one for a job each. Raises `UnequalWork`."""
    times: dict[str, list[float]] = {"sql": [], "eight jobs": []}
    with LocalRocketMQ() as broker, closing(RemotingQueueClient(ClientOptions(broker.name_server))) as client:
        for topic in ("source", "empty", "sink"):
            broker.create_topic(topic, queues=_QUEUES)
        fill(broker.name_server, count)
        alone = [functools.partial(_one_statement, statement) for statement in EIGHT]
        for repeat in range(repeats + 1):
            written = []
            for name, builds in (("sql", [by_eight]), ("eight jobs", alone)):
                before = held(client, "sink")
                took = sum(
                    seconds(runner, build, broker.name_server, "source")
                    - seconds(runner, build, broker.name_server, "empty")
                    for build in builds
                )
                time.sleep(2)  # the broker's index follows its log
                written.append(held(client, "sink") - before)
                if repeat:  # the first is to warm up
                    times[name].append(took)
            if len(set(written)) > 1:
                raise UnequalWork(f"one job and eight wrote {written} rows")
    lines = []
    for name, found in times.items():
        ratios = sorted(ours / peer for ours, peer in zip(times["sql"], found, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
        lines.append([runner, name, f"{count / statistics.median(found):,.0f}", spread])
    return lines


def _one_statement(statement: str, pipeline: beam.Pipeline, name_server: str, source: str) -> None:
    by_statements(pipeline, name_server, [statement.format(source=source)])


SIDES: Final = {"sql": by_sql, "copy of batches": by_copy, "elements": by_elements}


def seconds(runner: str, build: Callable[[beam.Pipeline, str, str], None], name_server: str, source: str) -> float:
    began = time.perf_counter()
    with beam.Pipeline(options=options([f"--runner={runner}"])) as pipeline:
        build(pipeline, name_server, source)
    return time.perf_counter() - began


def fill(name_server: str, count: int) -> int:
    """Fills the source. Returns how many messages pass the filter."""
    made = bodies(count)

    def lists(_: bytes) -> Iterator[list[Message]]:
        for at in range(0, count, 500):
            yield [Message(each) for each in made[at : at + 500]]

    with beam.Pipeline(options=options(["--runner=DirectRunner"])) as pipeline:
        messages = pipeline | beam.Impulse() | beam.FlatMap(lists).with_output_types(list[Message])
        _ = messages | WriteToRocketMQ("source", name_server=name_server, batches=True, with_sent=False)
    return len(filter_by_hand([Body(each) for each in made]))


def topics(runner: str, count: int, repeats: int) -> list[list[str]]:
    """A line per side. Raises `UnequalWork`."""
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    with LocalRocketMQ() as broker, closing(RemotingQueueClient(ClientOptions(broker.name_server))) as client:
        for topic in ("source", "empty", "sink"):
            broker.create_topic(topic, queues=_QUEUES)
        passes = fill(broker.name_server, count)
        empty = {
            name: min(seconds(runner, build, broker.name_server, "empty") for _ in range(3))
            for name, build in SIDES.items()
        }
        for repeat in range(repeats + 1):
            for name, build in SIDES.items():
                before = held(client, "sink")
                took = seconds(runner, build, broker.name_server, "source") - empty[name]
                wanted = count if name == "copy of batches" else passes
                until = time.monotonic() + _SETTLES_S  # the broker's index follows its log
                while (found := held(client, "sink") - before) != wanted and time.monotonic() < until:
                    time.sleep(0.1)
                if found != wanted:
                    raise UnequalWork(f"{name}: {found} messages are in the sink, {wanted} should be")
                if repeat:  # the first is to warm up
                    rates[name].append(count / took)
    lines = []
    for name in SIDES:
        ratios = sorted(ours / peer for ours, peer in zip(rates["sql"], rates[name], strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
        lines.append([runner, name, f"{statistics.median(rates[name]):,.0f}", spread])
    return lines
