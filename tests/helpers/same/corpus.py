"""Jobs of SQL as data: what `rmqio sql` needs to run them, without anything of the tests that they come from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from rmqio import MessageQueue
from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryCluster
from tests.helpers.oracles import forms, queries
from tests.helpers.oracles.grid import Call, Grid, calls
from tests.unit.sql.evaluating import bound, type_of
from tests.unit.sql.formats.support import encode, table_with

FOLDER: Final = "@FOLDER@"
"""Stands for the folder of a job's files, in its text."""


class Message(NamedTuple):
    """A message that is there before the job runs."""

    topic: str
    broker: str
    queue_id: int
    body: str
    """As Latin-1."""
    properties: dict[str, str]
    born_ms: int | None = None
    store_ms: int | None = None


class Job(NamedTuple):
    """A job, and all that it finds when it begins."""

    name: str
    text: str
    queues: list[tuple[str, str, int]]
    """Topic, broker and the number of queues there."""
    messages: list[Message]
    files: dict[str, str]
    """As Latin-1, by their names in the folder of the job."""

    def cluster(self) -> InMemoryCluster:
        """Returns a cluster with the topics and messages."""
        cluster = InMemoryCluster()
        for topic, broker, count in self.queues:
            cluster.create_topic(topic, count, (broker,))
        for each in self.messages:
            cluster.append(
                each.topic,
                each.body.encode("latin-1"),
                queue_id=each.queue_id,
                broker=each.broker,
                properties=each.properties,
                born_ms=each.born_ms,
                store_ms=each.store_ms,
            )
        return cluster


def save(jobs: Sequence[Job], file: Path) -> None:
    """Writes a corpus: a job in each line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(job._asdict()) + "\n" for job in jobs))


def load(file: Path) -> list[Job]:
    """Reads a corpus."""
    jobs = [Job(**json.loads(line)) for line in file.read_text().splitlines()]
    return [job._replace(messages=[Message(*message) for message in job.messages]) for job in jobs]


def contents(cluster: InMemoryCluster) -> tuple[list[tuple[str, str, int]], list[Message]]:
    """Returns the queues and the messages of a cluster."""
    places: dict[tuple[str, str], list[MessageQueue]] = {}
    for topic, stored in cluster._topics.items():
        for queue in sorted(stored.queues):
            places.setdefault((topic, queue.broker), []).append(queue)
    messages = [
        Message(
            queue.topic, queue.broker, queue.queue_id, record.body.decode("latin-1"), dict(record.properties),
            record.born_timestamp_ms, record.store_timestamp_ms,
        )
        for found in places.values() for queue in found for record in cluster.stored_queue(queue).slice(0, 1 << 30)
    ]  # fmt: skip
    return [(*place, len(found)) for place, found in places.items()], messages


def made() -> Iterator[Job]:
    """Yields jobs of what the oracles of SQL make: functions, forms of queries, random queries."""
    yield from _functions(Random(41))
    yield from _forms(Random(41))
    yield from _queries(Random(41))


_BY_THE_CLOCK: Final = re.compile(r"RAND|UUID|NOW|PROCTIME|CURRENT|LOCALTIME|UNIX_TIMESTAMP")
_ROUNDS, _CALLS, _ROWS, _FORMS, _QUERIES = 4, 40, 12, 20, 13
"""Types that are drawn for each function; calls and rows of a job, and queries."""


def _functions(random: Random) -> Iterator[Job]:
    drawn = {call.form: call for _ in range(_ROUNDS) for call in calls(random)}
    some = [call for call in drawn.values() if not _BY_THE_CLOCK.search(call.text) and _is_bound(call)]
    for at in range(0, len(some), _CALLS):
        part = some[at : at + _CALLS]
        grid = Grid(part, random, _ROWS)
        table = table_with({name: type_of(kind) for name, kind in grid.columns.items()})
        columns = ", ".join(f"{name} {kind}" for name, kind in grid.columns.items())
        source = f"CREATE TABLE t ({columns}) WITH ('topic' = 't', 'on-error' = 'null')"
        query = f"SELECT {', '.join(f'CAST({grid.text(each)} AS STRING)' for each in part)} FROM t"
        bodies = [encode(table, row) for row in grid.rows]
        yield _job(f"functions-{at // _CALLS}", [source], [(query, len(part))], {"t": bodies})


def _is_bound(call: Call) -> bool:
    try:
        bound(f"CAST({call.text} AS STRING)", {f"c{at}": (kind, None) for at, kind in enumerate(call.types)})
    except SqlError:
        return False
    return True


def _forms(random: Random) -> Iterator[Job]:
    tables = [forms.table(name, f"'topic' = '{name}', 'on-error' = 'null'") for name in forms.TABLES]
    bodies = {name: forms.bodies(name, random, 48) for name in forms.TABLES}
    rest = [*forms.windows(), *forms.joins(), *forms.ranks()]
    every = [*forms.aggregates(), *random.sample(rest, len(rest) // 3)]
    merged: dict[Any, list[forms.Form]] = {}
    for form in every:
        if _is_planned([*tables, *_inserted("s", forms.query([form]), len(form.columns))]):
            merged.setdefault((form.columns[:-1], form.rest), []).append(form)
    texts = [(forms.query(some), len(some[0].columns) - 1 + len(some)) for some in merged.values()]
    for at in range(0, len(texts), _FORMS):
        yield _job(f"forms-{at // _FORMS}", tables, texts[at : at + _FORMS], bodies)


def _queries(random: Random) -> Iterator[Job]:
    tables = [queries.table(name) for name in queries.TABLES]
    for number in range(4):
        bodies = {name: [queries.as_json(row).encode() for row in queries.rows(random, 40)] for name in queries.TABLES}
        texts = [queries.query(random, at) for at in range(_QUERIES)]
        yield _job(f"queries-{number}", tables, texts, bodies)


def _is_planned(statements: Sequence[str]) -> bool:
    try:
        Script().run(_SETTINGS + ";\n".join(statements) + ";")
    except SqlError:
        return False
    return True


_SETTINGS: Final = "SET 'table.exec.state.ttl' = '1 d';\n"


def _inserted(sink: str, query: str, width: int) -> tuple[str, str]:
    columns = ", ".join(f"c{n} STRING" for n in range(width))
    return f"CREATE TABLE {sink} ({columns}) WITH ('topic' = '{sink}')", f"INSERT INTO {sink} {query}"


def _job(name: str, tables: list[str], texts: list[tuple[str, int]], bodies: dict[str, list[bytes]]) -> Job:
    """A job of queries, with the number of columns of each."""
    statements = [*tables]
    for number, (query, width) in enumerate(texts):
        statements += _inserted(f"s{number}", query, width)
    topics = [*bodies, *(f"s{number}" for number in range(len(texts)))]
    messages = [
        Message(topic, "broker-a", at % 2, body.decode("latin-1"), {}, at, at)
        for topic, some in bodies.items()
        for at, body in enumerate(some)
    ]
    queues = [(topic, "broker-a", 2) for topic in topics]
    return Job(name, _SETTINGS + ";\n".join(statements) + ";", queues, messages, {})
