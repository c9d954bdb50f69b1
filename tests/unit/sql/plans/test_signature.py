"""The signature of a job: what changes it, and what it says then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.planning.signature import changes, signature_of
from rmqio.sql.runtime.kept_signature import check_signature
from rmqio.sql.scripts.script import Script

TABLES = """
CREATE TABLE o (id BIGINT, customer STRING, amount BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('topic' = 'o');
CREATE TABLE c (id BIGINT, name STRING) WITH ('topic' = 'c');
CREATE TABLE x (a BIGINT, b STRING) WITH ('topic' = 'x');
SET 'table.exec.state.ttl' = '1 h';
"""
WINDOW = "INSERT INTO x SELECT SUM(amount), customer FROM o GROUP BY customer, TUMBLE(ts, INTERVAL '1' MINUTE)"
JOIN = "INSERT INTO x SELECT o.id, c.name FROM o JOIN c ON o.id = c.id"


def script_of(*statements: str) -> Script:
    script = Script()
    script.run(TABLES + ";".join(statements) + ";")
    return script


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (WINDOW, f"-- a comment\n{WINDOW.replace('o GROUP', 'o AS q GROUP')}"),
        (WINDOW, WINDOW.replace("SUM(amount), customer", "SUM(amount) + 1 AS total, UPPER(customer) AS who")),
        (WINDOW, WINDOW.replace(" GROUP", " WHERE amount > 5 GROUP")),
        (
            WINDOW,
            "INSERT INTO x SELECT SUM(n), who FROM (SELECT amount AS n, customer AS who, ts FROM o) AS v "
            "GROUP BY who, TUMBLE(ts, INTERVAL '60' SECOND)",
        ),
        (JOIN, JOIN.replace("o.id, c.name", "o.id AS n, UPPER(c.name)")),
        (JOIN, f"{JOIN} WHERE c.name <> 'x'"),
    ],
)
def test_what_changes_no_state(before: str, now: str) -> None:
    assert changes(signature_of(script_of(before).sinks), signature_of(script_of(now).sinks)) == []


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (
            [WINDOW],
            [WINDOW.replace("'1' MINUTE", "'2' MINUTE")],
            ["INSERT INTO x: group: window was tumble of 1 min by o.ts, and is tumble of 2 min by o.ts"],
        ),
        (
            [WINDOW],
            [WINDOW.replace("SUM(amount)", "MAX(amount)")],
            ["INSERT INTO x: group: aggregates was SUM(o.amount), and is MAX(o.amount)"],
        ),
        (
            [WINDOW],
            [WINDOW.replace("customer", "UPPER(customer)")],
            ["INSERT INTO x: group: keys was o.customer, and is UPPER(o.customer)"],
        ),
        ([WINDOW], [WINDOW, JOIN], ["INSERT INTO x is new"]),
        ([WINDOW, JOIN], [WINDOW], ["INSERT INTO x is missing"]),
        (
            [JOIN],
            [JOIN.replace("o.id, c.name", "o.amount, c.name")],
            ["INSERT INTO x: join: left columns was o.id BIGINT, and is o.id BIGINT, o.amount BIGINT"],
        ),
        (
            [JOIN],
            [f"SET 'table.exec.state.ttl' = '2 h'; {JOIN}"],
            ["INSERT INTO x: join: time to live was 1 h, and is 2 h"],
        ),
        (
            [JOIN],
            ["INSERT INTO x SELECT id, name FROM c"],
            ["INSERT INTO x: it was join of read of c of read of o, and is read of c"],
        ),
    ],
)
def test_what_does(before: list[str], now: list[str], said: list[str]) -> None:
    kept = json.loads(json.dumps(signature_of(script_of(*before).sinks)))
    assert changes(kept, signature_of(script_of(*now).sinks)) == said


def test_it_is_kept_with_the_checkpoint(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoint")
    check_signature(folder, script_of(WINDOW).sinks)
    check_signature(folder, script_of(JOIN).sinks)  # there is no state yet
    (tmp_path / "checkpoint" / "offsets").mkdir()
    (tmp_path / "checkpoint" / "offsets" / "0").touch()
    check_signature(folder, script_of(f"/* again */ {JOIN}").sinks)
    with pytest.raises(SqlError, match=r"holds the state of another query: INSERT INTO x: it was join"):
        check_signature(folder, script_of(WINDOW).sinks)
    check_signature("nowhere://checkpoint", script_of(WINDOW).sinks)
