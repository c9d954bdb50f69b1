"""Completion knows the grammar, and the tables of the statement."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.scripts.script import Script
from rmqio.sql.shell.terminal import Completion

TABLES = """
CREATE TABLE orders (id BIGINT, customer STRING, `order` INT, 名 STRING) WITH ('topic' = 'orders');
CREATE TABLE other (x INT) WITH ('topic' = 'other');
CREATE VIEW large AS SELECT id AS large_id FROM orders;
"""


@pytest.fixture(scope="module")
def completion() -> Completion:
    script = Script()
    script.run(TABLES)
    return Completion(script.catalog)


def texts(completion: Completion, before: str, after: str = "") -> list[str]:
    return [each.text for each in completion.candidates(before, after)]


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("se", "", ["select", "set"]),
        ("SE", "", ["SELECT", "SET"]),
        ("he", "", ["help"]),
        ("SELECT 1; SELECT * fr", "", ["from"]),
        ("SELECT * FROM o", "", ["orders", "other"]),
        ("SELECT * FROM orders JOIN ot", "", ["other"]),
        ("INSERT INTO ", "", ["orders", "other"]),
        ("DESCRIBE l", "", ["large"]),
        ("DROP VIEW l", "", ["large"]),
        ("SELECT o.", " FROM orders AS o", ["id", "customer", "`order`", "名"]),
        ("SELECT o.cu", " FROM orders o WHERE TRUE", ["customer"]),
        ("SELECT large.", " FROM large", ["large_id"]),
        ("SELECT x.", " FROM orders AS o", []),
        ("SELECT * FROM orders WHERE custo", "", ["customer"]),
        ("SELECT * FROM orders w", "", ["where", "window"]),
        ("SELECT UPPE", "", ["UPPER("]),
        ("SELECT try_", "", ["try_cast("]),
        ("show ", "", ["CREATE", "FUNCTIONS", "TABLES", "VIEWS"]),
        ("CREATE TABLE t (a INT) WITH ('to", "", ["'topic'"]),
        ("CREATE TABLE t (a INT) WITH ('topic' = 't', form", "", ["'format'"]),
        ("CREATE TABLE t (a INT) WITH ('format' = 'av", "", ["'avro'", "'avro-confluent'", "'avro-openschema'"]),
        ("CREATE TABLE t (a INT) WITH ('on-error' = '", "", ["'fail'", "'dead-letter'", "'skip'", "'null'"]),
        ("SET 'scan.", "", ["'scan.startup.mode'", "'scan.bounded.mode'"]),
        ("SELECT 'se", "", []),
        ("SELECT 1 -- se", "", []),
        ("SELECT FROM WHERE ", "", []),
    ],
)
def test_what_can_stand_at_the_cursor(completion: Completion, before: str, after: str, wanted: list[str]) -> None:
    assert texts(completion, before, after) == wanted


def test_after_select_there_are_columns_functions_and_keywords(completion: Completion) -> None:
    found = texts(completion, "SELECT c", " FROM orders")
    assert {"customer", "case", "cast(", "count(", "coalesce("} <= set(found)
    assert found[0] == "customer"


def test_a_completion_replaces_what_was_typed(completion: Completion) -> None:
    assert [each.start for each in completion.candidates("SELECT * FROM `or")] == [3]
    assert {each.start for each in completion.candidates("SELECT * FROM ")} == {0}
