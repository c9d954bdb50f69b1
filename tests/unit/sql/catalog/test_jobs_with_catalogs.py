"""Jobs with the tables of a catalog, and statements from standard input."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.cli.main import main
from rmqio.sql.shell import processes, worker
from tests.helpers.fakes.broker import FakeBroker

CATALOG = """
CREATE TABLE t (a INT) WITH ('topic' = 't');
CREATE TABLE sink (a INT) WITH ('topic' = 'sink');
CREATE VIEW v AS SELECT a FROM t WHERE a > 1;
"""


def test_a_job_has_the_tables_of_its_catalog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "catalog.sql").write_text(CATALOG)
    (tmp_path / "job.sql").write_text("INSERT INTO sink SELECT a FROM v;")
    catalog = f"--catalog={tmp_path / 'catalog.sql'}"
    assert main(["sql", str(tmp_path / "job.sql"), catalog, "--check"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'job.sql'}: valid, 1 INSERT INTO\n"
    assert main(["sql", str(tmp_path / "job.sql"), "--check"]) == 2
    assert "job.sql:1:13: there is no table sink" in capsys.readouterr().err
    assert main(["sql", str(tmp_path / "job.sql"), f"{catalog}.gone", "--check"]) == 2
    assert "there is no such file" in capsys.readouterr().err
    (tmp_path / "job.sql").write_text("INSERT INTO sink SELECT b FROM v;")
    assert main(["sql", str(tmp_path / "job.sql"), catalog, "--check"]) == 2
    assert "job.sql:1:25: there is no column b" in capsys.readouterr().err


def test_without_a_terminal_standard_input_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"\ufeff{CATALOG} INSERT INTO sink SELECT a FROM v;"))
    assert main(["sql", "--check"]) == 0
    assert capsys.readouterr().out == "-: valid, 1 INSERT INTO\n"
    assert main(["sql", "-e", f"{CATALOG} INSERT INTO sink SELECT a FROM v", "--check"]) == 0
    assert capsys.readouterr().out == "-: valid, 1 INSERT INTO\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("SHOW TABLES;"))
    assert main(["sql", "--check"]) == 2
    assert "line 1:1: this statement works only in the shell, with `rmqio sql -e`" in capsys.readouterr().err


WIDE = "x" * 200
STATEMENTS: list[tuple[list[str], str, int, str, str]] = [
    (["-e", "SELECT 1 AS a"], "", 0, "a - 1", "1 row,"),
    (["-e", "SELECT 1 AS a -- one", "--execute=SELECT 2 AS b;"], "", 0, "a - 1 b - 2", "1 row,"),
    ([], "\ufeffSELECT 1 AS a;", 0, "a - 1", "1 row,"),
    (["-"], "CREATE VIEW v AS SELECT 1 AS a; SHOW VIEWS; quit; SELECT 2 AS b;", 0, "view ---- v", ""),
    ([], f"SELECT '{WIDE}' AS a;", 0, f"a {'-' * 200} {WIDE}", ""),
    ([], "SELECT 1 AS a; SELECT b; SELECT 3 AS c;", 2, "a - 1", "rmqio sql: line 1:23: there is no column b"),
    ([], "SELEC 1; SELECT 1;", 2, "", "rmqio sql: line 1:1: unexpected SELEC"),
    (["-e", "SELECT CAST('x' AS INT)"], "", 2, "", "rmqio sql: "),
    (["job.sql", "-e", "SELECT 1"], "", 2, "", "--execute has the statements: omit 'job.sql'"),
    (["--jobs=.", "-e", "SELECT 1"], "", 2, "", "--jobs runs the files of a folder: omit --execute"),
    (["-e", "SELECT 1", "--explain"], "", 2, "", "INSERT INTO ... SELECT; `rmqio sql -e` and the shell print them"),
    ([], "", 2, "", "there is nothing to do: no INSERT INTO"),
    (["-e", ""], "", 2, "", "rmqio sql: -e has no statement: is a variable of the command line empty?"),
    (["-e", " ;", "--execute=-- none", "--check"], "", 2, "", "rmqio sql: -e has no statement"),
    (["-e", "", "-e", "SELECT 1 AS a"], "", 0, "a - 1", "1 row,"),
]


@pytest.mark.parametrize(("argv", "text", "status", "out", "err"), STATEMENTS)
def test_statements_run_one_by_one_as_in_other_shells(
    argv: list[str], text: str, status: int, out: str, err: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main(["sql", *argv, "--catalog=none"]) == status
    found = capsys.readouterr()
    assert " ".join(found.out.split()) == out
    assert err in found.err


def test_statements_see_the_own_catalog_and_do_not_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own, given = tmp_path / "rmqio/catalog.sql", tmp_path / "given.sql"
    for path in (own, given):
        path.parent.mkdir(exist_ok=True)
        path.write_text(CATALOG)
    for catalog, kept in (([], 0), ([f"--catalog={given}"], 1)):
        for made in range(2):
            text = f"CREATE TABLE made_{made} (b INT) WITH ('topic' = 'n'); SHOW TABLES;"
            assert main(["sql", "-e", text, *catalog]) == 0
            shown = capsys.readouterr().out.split()[2:]
            assert shown == ["made_0"] * (kept * made) + [f"made_{made}", "sink", "t"]
    for what in (
        "TABLE t (b INT) WITH ('topic' = 'n')",
        "VIEW t AS SELECT 1 AS b",
        "TABLE v (b INT) WITH ('topic' = 'n')",
    ):
        create = f"CREATE {what};"
        assert main(["sql", "-e", f"{create} DESCRIBE {what.split()[1]}"]) == 0  # in place of the own one
        assert capsys.readouterr().out.splitlines()[2].split()[0] == "b"
        for text, catalog in ((create * 2, []), (create, [f"--catalog={given}"])):
            assert main(["sql", "-e", text, *catalog]) == 2
            assert "already" in capsys.readouterr().err
    assert own.read_text() == CATALOG
    assert given.read_text().count("CREATE TABLE made_") == 2


def test_statements_behind_an_insert_see_its_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads from the earliest message to those that the topic holds: else it would never end."""
    monkeypatch.setattr(processes, "run", worker.run)
    with FakeBroker() as broker:
        for topic in ("t", "sink"):
            broker.cluster.create_topic(topic)
        for number in range(5):
            broker.cluster.append("t", b'{"a": %d}' % number, queue_id=number % 2)
        text = f"{CATALOG} INSERT INTO sink SELECT a FROM v; SELECT a FROM sink WHERE a > 2;"
        argv = ["sql", "-e", text, "--catalog=none", "--name_server", broker.name_server]
        assert main(argv) == 0
        assert sorted(capsys.readouterr().out.split())[:4] == ["-", "3", "3", "4"]


def test_rows_that_nobody_reads_any_more_are_no_failure() -> None:
    command = [sys.executable, "-m", "rmqio", "sql", "--catalog=none", "-e", "VALUES (1)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert b"closed" not in process.stderr.read()
    assert process.returncode == 0
