"""What a statement costs until it runs grows as its length does: calls of functions are counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import apache_beam as beam
from apache_beam.runners.runner import PipelineRunner

from rmqio import StopAt
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.compile.shared import compiled_together
from rmqio.sql.explain.plans import explain
from rmqio.sql.explain.signature import signature_of
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import _Recorded
from rmqio.sql.scripts import script as scripts
from rmqio.sql.scripts.script import Script
from rmqio.sql.syntax.parser import parse

TABLES = "CREATE TABLE t (a INT, b STRING) WITH ('topic' = 't'); CREATE TABLE sink (b STRING) WITH ('topic' = 'sink');"


def calls_of(run: Callable[[], Any]) -> int:
    count = 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def planned(text: str) -> None:
    script = Script()
    script.run(TABLES + text)
    explain(script.sinks)
    signature_of(script.sinks)
    plans = _Recorded(beam.Pipeline(PipelineRunner()), Connection(stop=StopAt.latest()))
    for sink in script.sinks:
        plans.add(sink)
    fragments = [use.fragment for _, use in plans.scans]
    compiled(fragments[0])
    compiled_together(fragments)


def chain(operator: str, part: str, around: str) -> Callable[[int], str]:
    def text(count: int) -> str:
        query = around.format(f" {operator} ".join([part] * count))
        return f"INSERT INTO sink SELECT {query} FROM t; INSERT INTO sink SELECT {query} || 'x' FROM t;"

    return text


def views(count: int) -> str:
    made = [f"CREATE VIEW v{n + 1} AS SELECT b FROM v{n};" for n in range(count)]
    return f"CREATE VIEW v0 AS SELECT b FROM t; {' '.join(made)} INSERT INTO sink SELECT b FROM v{count};"


@pytest.mark.parametrize(
    "text",
    [
        chain("||", "b", "{}"),
        chain("+", "a", "CAST({} AS STRING)"),
        chain("OR", "a > 5", "CASE WHEN {} THEN 'x' END"),
        views,
    ],
)
def test_four_times_the_length_takes_four_times_as_many_calls(text: Callable[[int], str]) -> None:
    planned(text(2))
    assert calls_of(lambda: planned(text(120))) < 4.5 * calls_of(lambda: planned(text(30)))


def test_a_statement_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counting(text: str, file: str) -> Any:
        parsed.append(text.strip())
        return parse(text, file)

    monkeypatch.setattr(scripts, "parse", counting)
    script = Script()
    given = [TABLES, "INSERT INTO sink SELECT b FROM t;", "CREATE VIEW v AS SELECT b FROM t;"]
    for each in given:
        script.run(each)
    assert parsed == given
