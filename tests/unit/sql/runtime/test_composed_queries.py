"""Random queries of queries give what DuckDB gives, and none ends with a stack trace."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from tests.helpers.oracles.composed import TABLES, Column, Composer
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.running import put, run, stored

duckdb = pytest.importorskip("duckdb", reason="the oracle of SQL's tests")

TYPES = {"i": "INT", "s": "STRING", "b": "BOOLEAN"}
QUERIES = 12


def _rows(random: Random, name: str, count: int) -> list[dict[str, Any]]:
    values = {"k": ["a", "b", "é", "", None], "n": [None, *range(-2, 4)], "f": [True, False, None]}
    columns = values if name == "a" else ["k", "n"]
    return [{each: random.choice(values[each]) for each in columns} for _ in range(count)]


def _casts(columns: Sequence[Column]) -> str:
    return ", ".join(f"CAST({each.name} AS {TYPES[each.kind]}) AS {each.name}" for each in columns)


@pytest.mark.parametrize("seed", [7, pytest.param(104, marks=pytest.mark.exhaustive)])
def test_they_give_what_duckdb_gives(seed: int) -> None:
    random = Random(seed)
    given = {name: _rows(random, name, count) for name, count in (("a", 20), ("b", 8), ("e", 0))}
    composer = Composer(random)
    queries = [composer.query(random.choice([1, 2, 2, 3])) for _ in range(QUERIES)]
    script = "SET 'table.exec.state.ttl' = '1 h';"
    for name, columns in TABLES.items():
        script += f"CREATE TABLE {name} ({columns.format(text='STRING')}) WITH ('topic' = '{name}');"
    for number, query in enumerate(queries):
        columns = ", ".join(f"{each.name} {TYPES[each.kind]}" for each in query.columns)
        script += f"CREATE TABLE s{number} ({columns}) WITH ('topic' = 's{number}');"
        script += f"INSERT INTO s{number} SELECT {_casts(query.columns)} FROM ({query.text}) AS outermost;\n"
    with clean_cluster() as cluster, duckdb.connect() as connection:
        for topic in (*TABLES, *(f"s{number}" for number in range(QUERIES))):
            cluster.create_topic(topic, queues=2)
        for name, rows in given.items():
            put(cluster, name, *rows)
            connection.execute(f"CREATE TABLE {name} ({TABLES[name].format(text='VARCHAR')})")
            for row in rows:
                connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", list(row.values()))
        run(cluster, script)
        for number, query in enumerate(queries):
            found = Counter(tuple(json.loads(each.body).values()) for each in stored(cluster, f"s{number}"))
            assert found == Counter(connection.execute(query.text).fetchall()), query.text
