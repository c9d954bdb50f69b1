"""The shell on a pseudo-terminal, with statements that need no broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("prompt_toolkit", reason="the shell needs the extra 'sql'")

from tests.helpers.terminal import CTRL_C, CTRL_D, ENTER, UP, Terminal, on_terminal

COMMAND = [sys.executable, "-m", "rmqio", "sql", "--name_server", "127.0.0.1:1"]
PROMPT = r"sql> ?$"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    own = {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config"}
    folders = {name: str(tmp_path / folder) for name, folder in own.items()}
    return {**os.environ, **folders, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "LC_ALL": "C.UTF-8"}


@pytest.fixture
def shell(environment: dict[str, str]) -> Iterator[Terminal]:
    with on_terminal(COMMAND, environment) as terminal:
        terminal.wait_for(PROMPT)
        yield terminal


def test_lines_are_edited_completed_and_kept(shell: Terminal, environment: dict[str, str], tmp_path: Path) -> None:
    shell.type(f"VALUES (1, 'a'),{ENTER}")
    shell.wait_for(r"\.\.\.> ?$")
    assert "     1  a\n     2  王小明\n" in shell.run("(2, '王小明');", "2 rows, ")

    found = shell.run("SELECT a\nFROM x;", "there is no table x")
    assert "rmqio sql: line 2:6: there is no table x" in found
    shell.run("CREATE TABLE orders (id INT) WITH ('topic' = 'orders');", r"\n")
    shell.type("SELECT id FROM ord\t")
    shell.wait_for(r"ord.*ers")  # the menu was there, and is gone
    # Without a broker, the query fails, and not the shell.
    shell.run(";", "no name server answers")
    shell.type(f"SELECT 1{ENTER}{CTRL_C}")
    shell.wait_for(PROMPT)
    shell.type(UP + UP)
    shell.wait_for(r"CREATE TABLE orders")
    shell.run("", "there is a table orders already")

    shell.type(CTRL_D)
    assert shell.wait() == 0
    history = tmp_path / "state/rmqio/sql_history"
    assert "+VALUES (1, 'a'),\n+(2, '王小明');" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
    with on_terminal(COMMAND, environment) as again:
        again.wait_for(PROMPT)
        assert "\norders\n" in again.run("SHOW TABLES;", r"\norders\n")
        again.type(f"QUIT{ENTER}")
        assert again.wait() == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--nmae_server=x"], "unknown argument"),
        (["--runner=Sprk"], "the nearest known one is"),
        (["--catalog=a.sql", "--catalog=b.sql"], "names two files"),
    ],
)
def test_wrong_arguments_start_no_shell(environment: dict[str, str], more: list[str], message: str) -> None:
    with on_terminal([*COMMAND, *more], environment) as terminal:
        terminal.wait_for(message)
        assert terminal.wait() == 2


def test_a_catalog_that_is_not_valid_starts_no_shell(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "c.sql").write_text("CREATE TABEL t")
    with on_terminal([*COMMAND, f"--catalog={tmp_path / 'c.sql'}"], environment) as terminal:
        terminal.wait_for(r"c\.sql:1:8: unexpected TABEL")
        assert terminal.wait() == 2


@pytest.mark.slow
def test_what_needs_a_runner_has_a_process_of_its_own(shell: Terminal) -> None:
    grouped = "FROM (VALUES (1), (2), (1)) AS v (a) GROUP BY a"
    found = shell.run(f"SELECT a, COUNT(*) AS n {grouped};", "2 rows, ", still_s=120)
    assert sorted(line.split() for line in found.splitlines() if line.startswith((" 1", "1", "2"))) == [
        ["1", "2"],
        ["2", "1"],
    ]
    shell.run(f"SELECT a {grouped} LIMIT 1;", "1 row, ", still_s=120)
    shell.run("SELECT 1 / a FROM (VALUES (0)) AS v (a) GROUP BY a;", "division by zero; the row is .*\n")
    shell.run("CREATE TEMPORARY TABLE out (a INT) WITH ('connector' = 'print');", r"\n")
    found = shell.run("INSERT INTO out VALUES (41), (42);", "rows written", still_s=120)
    assert '{"a":41}\n{"a":42}\n' in found
    shell.run("BEGIN STATEMENT SET; INSERT INTO out VALUES (43);", r"\n")
    shell.run("INSERT INTO out VALUES (44);", r"\n")
    found = shell.run("END;", "2 rows written", still_s=120)
    assert {'{"a":43}', '{"a":44}'} <= set(found.splitlines())
    sixty = f"(VALUES {', '.join(f'({each})' for each in range(60))}) AS"
    crossed = " CROSS JOIN ".join(f"{sixty} {name} (x)" for name in "abcd")
    shell.type(f"SELECT COUNT(*) AS n FROM {crossed} GROUP BY a.x;{ENTER}")  # 13 million rows: it takes a minute
    shell.interrupt()
    shell.wait_for(PROMPT)
    shell.run("VALUES (7);", r" 7\n.*1 row, ")
