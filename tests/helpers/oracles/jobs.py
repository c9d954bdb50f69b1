"""Queries run by Flink and by us, and what differs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.sql.flink import FlinkSql
from rmqio.sql import values
from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryCluster
from tests.helpers.oracles import forms
from tests.helpers.oracles.flink import Difference
from tests.helpers.oracles.forms import Form
from tests.unit.sql.running import put, run_script

_QUERIES, _COLUMNS = 20, 30
"""Queries of one job, and forms of one query."""
_SETTINGS: Final = ("SET 'table.local-time-zone' = '{}'", "SET 'table.exec.state.ttl' = '1 d'")
Rows = Counter[tuple[Any, ...]]
Query = tuple[Form, ...]


class Jobs:
    """Tables with the same rows for Flink and for us."""

    def __init__(self, flink: FlinkSql, cluster: InMemoryCluster, folder: Path, random: Random) -> None:
        self._flink = flink
        self._cluster = cluster
        self._number = count()
        self._theirs: list[str] = []
        self._ours: list[str] = []
        self._settings: list[str] = []
        for name in forms.TABLES:
            found = forms.bodies(name, random, 48)
            (folder / name).mkdir()
            (folder / name / "rows.json").write_bytes(b"".join(each + b"\n" for each in found))
            options = f"'connector' = 'filesystem', 'path' = '{folder / name}', 'format' = 'json'"
            self._theirs.append(forms.table(name, options))
            cluster.create_topic(name, 1)
            put(cluster, name, *found, queue_id=0)
            self._ours.append(forms.table(name, f"'topic' = '{name}'"))

    def differences(self, given: Sequence[Form], zone: str) -> list[Difference]:
        """Returns what differs of queries in a time zone."""
        self._settings = [each.format(zone) for each in _SETTINGS]
        with values.in_zone(zone):
            return [each._replace(given=zone) for each in self._differences(given)]

    def _differences(self, given: Sequence[Form]) -> list[Difference]:
        theirs = self._flink.refusals([*self._settings, *self._theirs], [forms.query([each]) for each in given])
        found, both = [], []
        for form, refusal, own in zip(given, theirs, self._refusals(given), strict=True):
            if (own is None) != (refusal is None):
                kind = "refused here" if own else "refused by Flink"
                found.append(Difference(form.name, kind, own or refusal or ""))
            elif own is None:
                both.append(form)
        for some in _pieces(list(_merged(both)), _QUERIES):
            for form, *both_rows in zip(
                (form for query in some for form in query),
                _tried(self._of_ours, some),
                _tried(self._of_flink, some),
                strict=True,
            ):
                ours, flinks = (_rounded(form, each) for each in both_rows)
                if (kind := _kind(ours, flinks)) and isinstance(ours, Counter) and isinstance(flinks, Counter):
                    detail = f"{list((ours - flinks).elements())} | {list((flinks - ours).elements())}"
                    found.append(Difference(form.name, kind, detail))
                elif kind:
                    found.append(Difference(form.name, kind, str(ours if isinstance(ours, str) else flinks)))
        return found

    def _of_flink(self, given: Sequence[Query]) -> list[list[tuple[Any, ...]]]:
        width = max(map(_width, given))
        parts = []
        for number, query in enumerate(given):
            columns = [f"c{n}" if n < _width(query) else "CAST(NULL AS STRING)" for n in range(width)]
            parts.append(f"SELECT {number}, {', '.join(columns)} FROM ({forms.query(query)})")
        found: list[list[tuple[Any, ...]]] = [[] for _ in given]
        for number, *row in self._flink.rows([*self._settings, *self._theirs, " UNION ALL ".join(parts)]).rows:
            found[number].append(tuple(row[: _width(given[number])]))
        return found

    def _of_ours(self, given: Sequence[Query]) -> list[list[tuple[Any, ...]]]:
        topics = [f"sink{next(self._number)}" for _ in given]
        for each in topics:
            self._cluster.create_topic(each, 1)
        run_script(self._cluster, self._script(given, topics))
        return [[tuple(json.loads(each.body).values()) for each in self._cluster.records(topic)] for topic in topics]

    def _refusals(self, given: Sequence[Form]) -> Iterator[str | None]:
        script = self._script([], [])
        for number, form in enumerate(given):
            try:
                script.run(f"{_inserted(f'sink{number}', (form,))};")
            except SqlError as error:
                yield str(error)
            else:
                yield None

    def _script(self, given: Sequence[Query], topics: Sequence[str]) -> Script:
        script = Script()
        texts = [*self._settings, *self._ours]
        for query, topic in zip(given, topics, strict=True):
            texts.append(_inserted(topic, query))
        script.run(";\n".join(texts) + ";")
        return script


def _inserted(topic: str, query: Query) -> str:
    columns = ", ".join(f"c{n} STRING" for n in range(_width(query)))
    created = f"CREATE TABLE {topic} ({columns}) WITH ('topic' = '{topic}')"
    return f"{created};\nINSERT INTO {topic} {forms.query(query)}"


def _merged(given: Sequence[Form]) -> Iterator[Query]:
    """Forms that differ in their last column only are one query."""
    found: dict[Any, list[Form]] = {}
    for each in given:
        found.setdefault((each.columns[:-1], each.rest), []).append(each)
    for some in found.values():
        yield from map(tuple, _pieces(some, _COLUMNS))


def _pieces(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _width(query: Query) -> int:
    return len(query[0].columns) - 1 + len(query)


def _tried(run: Callable[[Sequence[Query]], list[list[tuple[Any, ...]]]], given: Sequence[Query]) -> list[Rows | str]:
    """The rows of each form, or why it fails: if a job does, its halves are asked."""
    try:
        found = run(given)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what differs, or does not
        if len(given) == 1 and len(given[0]) == 1:
            return [f"{type(error).__name__}: {error}"]
        if len(given) == 1:
            halves: list[Sequence[Query]] = [[half] for half in _halves(given[0])]
        else:
            halves = list(_halves(given))
        return [each for half in halves for each in _tried(run, half)]
    return [
        Counter((*row[: len(query[0].columns) - 1], row[len(query[0].columns) - 1 + at]) for row in rows)
        for query, rows in zip(given, found, strict=True)
        for at in range(len(query))
    ]


def _halves(items: Any) -> tuple[Any, Any]:
    half = len(items) // 2
    return items[:half], items[half:]


def _rounded(form: Form, rows: Rows | str) -> Rows | str:
    """Floats with the digits that do not depend on the order of sums, nor on Java's version."""
    digits = 12 if "DOUBLE" in form.name else 6 if "FLOAT" in form.name else 0
    if not digits or isinstance(rows, str):
        return rows
    return Counter(
        tuple(cell and _FLOAT.sub(lambda found: f"{float(found[0]):.{digits}g}", cell) for cell in row)
        for row in rows.elements()
    )


_FLOAT: Final = re.compile(r"\d+\.\d+(E[+-]?\d+)?")


def _kind(ours: Rows | str, flinks: Rows | str) -> str:
    match isinstance(ours, str), isinstance(flinks, str):
        case True, False:
            return "fails here"
        case False, True:
            return "fails in Flink"
        case False, False if ours != flinks:
            return "value"
    return ""
