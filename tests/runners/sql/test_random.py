"""Random queries over random rows with NULLs give the same rows on all runners; where DuckDB takes them, also its rows.

All of a seed are one job, which reads each topic once.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.cli.main import main
from rmqio.model import Message, MessageQueue
from rmqio.runners.capabilities import Mode
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.oracles import composed, queries
from tests.runners.sql.test_sql import FLAGS

duckdb = pytest.importorskip("duckdb", reason="the oracle of SQL's tests")

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

COMPOSED, TIMED = 14, 26
"""Queries of queries, which DuckDB takes, too; queries with times and windows: two of each kind."""
VALUES: Final = {"k": ["a", "b", "é", "", None], "n": [None, *range(-2, 4)], "f": [True, False, None]}
_END: Final = b"end"
OTHERS = [
    pytest.param(FLAGS[mode], id=FLAGS[mode], marks=[pytest.mark.shows(mode), pytest.mark.exhaustive])
    for mode in Mode
    if mode in FLAGS and mode is not Mode.DIRECT
]
Rows = dict[int, Counter[tuple[str | None, ...]]]
"""The rows of each query, with their values as texts."""


class Given(NamedTuple):
    """Topics with random rows, and queries over them."""

    lab: Lab
    prefix: str
    tables: dict[str, list[dict[str, Any]]]
    """Rows of the tables that DuckDB has, too."""
    texts: list[tuple[str, int]]
    """Queries and the number of their columns: composed ones first."""

    def run(self, runner: str, folder: Path) -> Rows:
        """Runs all queries as one job, and returns the rows that it writes."""
        topic = f"{self.prefix}-{uuid.uuid4().hex[:6]}"
        self.lab.broker.create_topic(topic, queues=2)
        width = max(columns for _, columns in self.texts)
        names = ", ".join(f"c{n}" for n in range(width))
        script = ["SET 'table.exec.state.ttl' = '1 h'"]
        for name, kinds in composed.TABLES.items():
            script.append(
                f"CREATE TABLE {name} ({kinds.format(text='STRING')}) WITH ('topic' = '{self.prefix}-{name}')"
            )
        for name in queries.TABLES:
            script.append(queries.table(name).replace(f"'topic' = '{name}'", f"'topic' = '{self.prefix}-{name}'"))
        texts = names.replace(",", " STRING,")
        script.append(f"CREATE TABLE sink (query INT, {texts} STRING) WITH ('topic' = '{topic}')")
        for number, (text, columns) in enumerate(self.texts):
            given = ", ".join(f"c{n}" if n < columns else "CAST(NULL AS STRING)" for n in range(width))
            own = ", ".join(f"c{n}" for n in range(columns))
            script.append(f"INSERT INTO sink SELECT {number}, {given} FROM ({text}) AS outermost ({own})")
        file = folder / "random.sql"
        file.write_text(";\n".join(script) + ";", "utf-8")
        flags = [f"--name_server={self.lab.broker.name_server}", "--start=earliest", "--stop=latest"]
        if runner == "SparkRunner --streaming":
            flags.append(f"--checkpoint_dir={folder / 'checkpoint'}")
        assert main(["sql", str(file), *flags, *f"--runner={runner}".split()]) == 0
        found: Rows = {number: Counter() for number in range(len(self.texts))}
        for queue in self.lab.client.queues(topic):  # a broker shows a message after all that it has stored before
            send_all(self.lab.broker.broker, queue, [Message(_END)])
        for record in read_topic(self.lab.client, topic):
            if record.body != _END:
                number, *values = json.loads(record.body).values()
                found[number][tuple(values[: self.texts[number][1]])] += 1
        return found


def made_tables(random: Random) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for name, count in (("a", 20), ("b", 8), ("e", 0)):
        columns = [each.split()[0] for each in composed.TABLES[name].split(", ")]
        yield name, [{each: random.choice(VALUES[each]) for each in columns} for _ in range(count)]


def as_texts(query: composed.Query) -> tuple[str, int]:
    columns = ", ".join(f"CAST({each.name} AS STRING)" for each in query.columns)
    return f"SELECT {columns} FROM ({query.text}) AS inner_rows", len(query.columns)


@pytest.fixture(scope="module")
def given(lab: Lab) -> Given:
    random = Random(11)
    tables = dict(made_tables(random))
    composer = composed.Composer(random)
    texts = [as_texts(composer.query(random.choice([1, 2, 2, 3]))) for _ in range(COMPOSED)]
    texts += [queries.query(random, number) for number in range(TIMED)]
    prefix = f"random-{uuid.uuid4().hex[:10]}"
    bodies = {name: [json.dumps(row) for row in rows] for name, rows in tables.items()}
    bodies |= {name: [queries.as_json(row) for row in queries.rows(random, 60)] for name in queries.TABLES}
    for name, found in bodies.items():
        topic = f"{prefix}-{name}"
        lab.broker.create_topic(topic, queues=2)
        for number in range(2):
            if messages := [Message(each.encode()) for each in found[number::2]]:
                send_all(lab.broker.broker, MessageQueue(topic, lab.broker.name, number), messages)
    return Given(lab, prefix, tables, texts)


@pytest.fixture(scope="module")
def on_direct(given: Given, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Returns the rows that the DirectRunner gives, with which the others are compared."""
    return given.run(FLAGS[Mode.DIRECT], tmp_path_factory.mktemp("direct"))


def by_duckdb(given: Given) -> Rows:
    with duckdb.connect() as connection:
        for name, rows in given.tables.items():
            connection.execute(f"CREATE TABLE {name} ({composed.TABLES[name].format(text='VARCHAR')})")
            for row in rows:
                connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", list(row.values()))
        return {
            number: Counter(connection.execute(text).fetchall())
            for number, (text, _) in enumerate(given.texts[:COMPOSED])
        }


def different(given: Given, found: Rows, wanted: Rows, numbers: Iterable[int]) -> list[Any]:
    """Returns queries whose rows differ: those that are too many, and those that are missing."""
    return [
        (given.texts[number][0], found[number] - wanted[number], wanted[number] - found[number])
        for number in numbers
        if found[number] != wanted[number]
    ]


@pytest.mark.shows(Mode.DIRECT)
def test_queries_of_queries_give_what_duckdb_gives(given: Given, on_direct: Rows) -> None:
    def lower(rows: Counter[Any]) -> Counter[Any]:
        """DuckDB writes `true`."""
        return Counter({tuple(each and each.lower() for each in row): count for row, count in rows.items()})

    found = {number: lower(rows) for number, rows in on_direct.items()}
    assert different(given, found, by_duckdb(given), range(COMPOSED)) == []
    assert sum(map(bool, on_direct.values())) > len(given.texts) * 2 // 3, "most queries have rows"


@pytest.mark.parametrize("runner", OTHERS)
def test_all_runners_give_the_same_rows(runner: str, given: Given, on_direct: Rows, tmp_path: Path) -> None:
    found = given.run(runner, tmp_path)
    assert different(given, found, on_direct, range(len(given.texts))) == []
