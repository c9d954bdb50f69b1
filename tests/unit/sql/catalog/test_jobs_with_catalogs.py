"""Jobs with the tables of a catalog, and statements from standard input."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.cli.main import main

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
    monkeypatch.setattr("sys.stdin", io.StringIO("SHOW TABLES;"))
    assert main(["sql"]) == 2
    assert "line 1:1: this statement works only in the shell" in capsys.readouterr().err
