"""EXPLAIN: what inputs that end change, what a table gets deleted, and trees on a narrow terminal."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.explain.plans import explain, fitted
from rmqio.sql.scripts.script import Script

TABLES = """
CREATE TABLE o (id BIGINT, k STRING, v INT, ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR ts AS ts) WITH (
  'topic' = 'o'{more}
);
CREATE TABLE p (k STRING, id BIGINT, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('topic' = 'p');
"""
ENDS = ", 'endTime' = '2024-01-01 00:00:00'"
ROWS = "SELECT k, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) AS rn FROM o) WHERE rn <= {}"
OVER = "SELECT k, COUNT(*) OVER (PARTITION BY k ORDER BY ts {} PRECEDING) FROM o"
DELETES = "deletes rows that are no longer there by tombstones"


def tree(query: str, more: str = "", key: str = "k", setting: str = "") -> str:
    script = Script()
    script.run(f"{setting} {TABLES.format(more=more, key=key)} EXPLAIN INSERT INTO p {query};")
    return explain(script.explained)


@pytest.mark.parametrize(
    ("query", "endless", "ends"),
    [
        (
            "SELECT k, COUNT(*) FROM o GROUP BY k",
            ["Group by k, once when the input ends, else upsert by key", "partial results until then, or forever"],
            ["Group by k, once when the input ends", "keeps partial results until then"],
        ),
        (
            ROWS.format("id DESC", 1),
            ["First row by k, once when the input ends, else upsert by key (k)", "keeps a row of each, forever"],
            ["First row by k, once when the input ends", "shuffles by k, keeps a row of each until then"],
        ),
        (
            ROWS.format("pt", 1),
            ["First row by k, append-only, when it comes", "keeps of each that it was there, forever"],
            ["First row by k, once when the input ends", "shuffles by k, keeps a row of each until then"],
        ),
    ],
)
def test_inputs_that_end_have_no_updates_and_no_state_beyond(query: str, endless: list[str], ends: list[str]) -> None:
    for text in endless:
        assert text in tree(query)
    lines = [each.strip("│├└─ ") for each in tree(query, ENDS).split("\n")]
    for text in ends:
        assert any(each == text or each.endswith(f", {text}") for each in lines), lines


@pytest.mark.parametrize(
    ("query", "key", "deletes"),
    [
        (ROWS.format("id DESC", 1), "k", False),  # a row only replaces the one before
        (ROWS.format("id DESC", 3), "k, id", True),
        (ROWS.format("id DESC", 1), "id, k", True),
        (ROWS.format("id DESC", 1) + " AND v > 0", "k", True),
        ("SELECT k, COUNT(*) FROM o GROUP BY k", "k", False),
        ("SELECT k, COUNT(*) FROM o GROUP BY k HAVING COUNT(*) < 3", "k", True),
    ],
)
def test_it_says_whether_rows_are_deleted(query: str, key: str, deletes: bool) -> None:
    assert (DELETES in tree(query, key=key)) is deletes


TOP = "SELECT k, n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC) AS rn FROM ({})) WHERE rn <= 3"
COUNTS = "SELECT k, COUNT(*) AS n FROM o GROUP BY k"


@pytest.mark.parametrize(
    ("query", "forever", "kept"),
    [
        (COUNTS, "partial results until then, or forever", "until then, or for 1 h after the last row of each"),
        (
            "SELECT k, SUM(id) OVER (PARTITION BY k ORDER BY ts) FROM o",
            "partial results of each key",
            "partial results of each key, for 1 h after its last row",
        ),
        (
            TOP.format(COUNTS),
            "keeps all groups forever",
            "keeps the first ones, and all other groups for 1 h after their last change",
        ),
    ],
)
def test_it_says_how_long_a_key_is_kept(query: str, forever: str, kept: str) -> None:
    setting = "SET 'table.exec.state.ttl' = '1 h';"
    lines = [[line.strip("│├└─ ") for line in tree(query, setting=each).split("\n")] for each in ("", setting)]
    for text, found in zip((forever, kept), lines, strict=True):
        assert any(each.endswith(text) for each in found), found


def test_trees_fit_a_terminal() -> None:
    """Words and lines of the tree stay whole."""
    text = tree("SELECT a.k, b.id FROM o AS a JOIN o AS b ON a.id = b.id AND a.k = b.k AND a.v > b.v WHERE a.ts = b.ts")
    assert max(map(len, text.split("\n"))) > 70
    for columns in (50, 70):
        found = fitted(text, columns)
        assert max(map(len, found.split("\n"))) <= columns
        assert re.sub(r"[│├└─\s]+", " ", found) == re.sub(r"[│├└─\s]+", " ", text)
    assert fitted(text, 1000) == text
    assert fitted("├─ Group by a, b and c\n│  │   x\n│  └─ y", 33) == "├─ Group by a, b and c\n│  │   x\n│  └─ y"
    long = "├─ Group by a, b, c, d, and by e and f\n│  │   keeps the partial results for a while\n│  └─ y"
    assert fitted(long, 33) == (
        "├─ Group by a, b, c, d, and by e\n│  │     and f\n"
        "│  │   keeps the partial results for\n│  │     a while\n│  └─ y"
    )


def test_wide_characters_take_two_columns() -> None:
    line = "│   地址 AS 客户, 城市 AS 地方, 金额 AS 总额"
    found = fitted(line, 34).split("\n")
    assert found == ["│   地址 AS 客户, 城市 AS 地方,", "│     金额 AS 总额"]
    assert fitted(line, 44) == line


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("SELECT k, id FROM o WHERE k NOT IN (SELECT k FROM o)", "where k NOT IN (query)"),
        (OVER.format("ROWS 1 + 1"), "COUNT(*) OVER (ROWS 2 PRECEDING)"),
        (OVER.format("RANGE INTERVAL '1' HOUR + INTERVAL '30' MINUTE"), "COUNT(*) OVER (RANGE 1 h 30 min PRECEDING)"),
        (OVER.format("RANGE INTERVAL '0.0015' SECOND"), "COUNT(*) OVER (RANGE 1 ms 500 µs PRECEDING)"),
        (OVER.format("RANGE INTERVAL '0.0005' SECOND"), "COUNT(*) OVER (RANGE 500 µs PRECEDING)"),
        ("SELECT k, id FROM o WHERE k IN (SELECT k FROM o) OR v > 3", "where k IN (query) OR v > 3"),
        (
            "SELECT k, SUM(id) FROM o GROUP BY ROLLUP (k)",
            "Group by k, grouping set, once when the input ends",
        ),
    ],
)
def test_expressions_are_those_of_the_query(query: str, shown: str) -> None:
    lines = [each.strip("│├└─ ") for each in tree(query, ENDS).split("\n")]
    assert shown in lines, lines
    assert not any("$" in each or "CASE" in each for each in lines)
