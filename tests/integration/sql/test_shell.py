"""The shell on a real terminal and a real broker: rows come as they are stored, and Ctrl-C ends the query only."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prompt_toolkit", reason="the shell needs the extra 'sql'")

from rmqio.model import Message, MessageQueue
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.terminal import CTRL_C, CTRL_D, ENTER, UP, Terminal, on_terminal
from tests.helpers.waiting import until_found

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    own = {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache"}
    return {
        **os.environ,
        **{name: str(tmp_path / folder) for name, folder in own.items()},
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "LC_ALL": "C.UTF-8",
    }


@pytest.fixture
def topics(lab: Lab) -> tuple[str, str]:
    orders, copies = (f"shell-{kind}-{uuid.uuid4().hex[:8]}" for kind in ("orders", "copies"))
    for name in (orders, copies):
        lab.broker.create_topic(name, queues=2)
    return orders, copies


@pytest.fixture
def shell(lab: Lab, environment: dict[str, str]) -> Iterator[Terminal]:
    with on_terminal(_command(lab), environment) as terminal:
        terminal.wait_for(r"sql> ?$")
        yield terminal


def _command(lab: Lab) -> list[str]:
    return [sys.executable, "-m", "rmqio", "sql", "--name_server", lab.broker.name_server]


def send(lab: Lab, topic: str, numbers: range) -> None:
    for number in numbers:
        row = {"id": number, "customer": ["王小明", "Ann", None][number % 3], "note": "n" * (number * 10 % 90)}
        body = json.dumps(row, ensure_ascii=False).encode()
        send_all(lab.broker.broker, MessageQueue(topic, lab.broker.name, number % 2), [Message(body)])


def test_the_shell(
    lab: Lab, shell: Terminal, topics: tuple[str, str], environment: dict[str, str], tmp_path: Path
) -> None:
    orders, copies = topics
    send(lab, orders, range(12))

    shell.type(f"CREATE TABLE orders (id BIGINT, customer STRING, note STRING){ENTER}")
    shell.wait_for(r"\.\.\.> ?$")
    shell.run(f"WITH ('topic' = '{orders}');", r"\n")

    # The rows of both queues, in the order in which they were stored, fit 80 columns.
    found = shell.run("SELECT id, customer, note FROM orders WHERE id > 5 LIMIT 4;", r"4 rows, [\d.]+ s")
    assert _lines(found, 6) == [
        "id  customer  note",
        "--  --------  " + "-" * 66,
        " 6  王小明    " + "n" * 60,
        " 7  Ann       " + "n" * 63 + "...",
        " 8  NULL      " + "n" * 63 + "...",
        " 9  王小明",
    ]

    # A query without an end prints what comes later, and Ctrl-C ends it, and not the shell.
    shell.type(f"SELECT id, customer FROM orders;{ENTER}")
    shell.wait_for(r"11  NULL\n")
    send(lab, orders, range(12, 14))
    shell.wait_for(r"12  王小明\n13  Ann\n")
    shell.interrupt()
    shell.wait_for(r"sql> ?$")

    # An error shows its place; completion and history.
    assert "SELECT nme FROM orders;\n         ^^^" in shell.run("SELECT nme FROM orders;", "there is no column nme")
    shell.type("SELECT id FROM ord\t")
    shell.wait_for("ord.*ers")
    assert "rows" not in shell.run(" LIMIT 1;", r"1 row, ")
    shell.type(UP)
    shell.wait_for("LIMIT 1;")
    shell.run("", r" 0\n.*1 row, ")

    # What needs a shuffle runs in a process of its own, over what the topic holds.
    found = shell.run("SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer;", r"3 rows, ")
    assert sorted(_lines(found, 5)[2:]) == ["Ann       5", "NULL      4", "王小明    5"]

    # Ctrl-C in an unfinished statement clears it.
    shell.type(f"SELECT id{ENTER}FROM{CTRL_C}")
    shell.run("SET 'scan.startup.mode' = 'earliest';", r"\n")

    # INSERT INTO is a job, which ends, or is ended.
    shell.run(f"CREATE TABLE copies (id BIGINT) WITH ('topic' = '{copies}');", r"\n")
    shell.run("SET 'scan.bounded.mode' = 'latest';", r"\n")
    shell.run("INSERT INTO copies SELECT id FROM orders;", r"14 rows written", still_s=120)
    shell.run("SET 'scan.bounded.mode' = 'unbounded';", r"\n")
    shell.type(f"INSERT INTO copies SELECT id + 100 FROM orders;{ENTER}")
    shell.wait_for("until Ctrl-C")
    until_found(lambda: _ids(lab, copies), [*range(14), *range(100, 114)])
    shell.interrupt("interrupted.*sql> ?$")
    assert sorted(_ids(lab, copies)) == [*range(14), *range(100, 114)]
    print(shell.shown)

    shell.type(CTRL_D)
    assert shell.wait() == 0
    history = tmp_path / "state/rmqio/sql_history"
    assert "SELECT id, customer FROM orders;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0

    # The next shell has the tables.
    with on_terminal(_command(lab), environment) as again:
        again.wait_for(r"catalog\.sql.*sql> ?$")
        assert {"copies", "orders"} <= set(_lines(again.run("SHOW TABLES;", r"orders\n"), 4))
        again.type(f"QUIT{ENTER}")
        assert again.wait() == 0


def _lines(shown: str, count: int) -> list[str]:
    """The lines before the remark of a query's end."""
    lines = [line.rstrip() for line in shown.splitlines()]
    ends = [at for at, line in enumerate(lines) if line.startswith("rmqio sql: ")] or [len(lines) - 1]
    return lines[ends[-1] - count : ends[-1]]


def _ids(lab: Lab, topic: str) -> list[Any]:
    return [json.loads(record.body)["id"] for record in read_topic(lab.client, topic)]
