"""Files and folders that do not serve are told by the shell and by a job, before Beam is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.planning.checks import require_files
from rmqio.sql.scripts.script import Script

TABLES = """
CREATE TABLE f (a INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{here}/some.csv');
CREATE TABLE none (a INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{here}/none.csv');
CREATE TABLE some (a INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{here}/*.none');
CREATE TABLE far (a INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 's3://none/none.csv');
CREATE TABLE db (a INT) WITH ('connector' = 'jdbc', 'url' = 'sqlite:///{here}/none.db', 'table-name' = 't');
CREATE TABLE uri (a INT) WITH ('connector' = 'jdbc', 'url' = 'sqlite:///file:none.db?uri=true', 'table-name' = 't');
CREATE TABLE pw (a INT) WITH ('connector' = 'jdbc', 'url' = 'postgresql://me@h/x', 'table-name' = 't',
  'password_file' = '{here}/none');
CREATE TABLE out (a INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{here}/new/out');
CREATE TABLE below (a INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{here}/some.csv/out');
CREATE TABLE sealed (a INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '/proc/none/out');
CREATE TABLE t (a INT, p AS PROCTIME()) WITH ('topic' = 't');
CREATE TABLE sink (a INT) WITH ('topic' = 's');
"""
NONE = "cannot be read: there is no file {here}/none"
JOINED = "FROM t JOIN {0} FOR SYSTEM_TIME AS OF t.p AS d ON t.a = d.a"


@pytest.mark.parametrize(
    ("statement", "elsewhere", "told"),
    [
        ("INSERT INTO out SELECT a FROM f", None, None),
        ("INSERT INTO out SELECT a FROM some UNION ALL SELECT a FROM far", None, None),
        ("INSERT INTO out SELECT a FROM none", f"the table none {NONE}.csv", f"the table none {NONE}.csv"),
        ("INSERT INTO sink SELECT CAST(COUNT(*) AS INT) FROM (SELECT a FROM f UNION ALL SELECT a FROM none)",
         f"the table none {NONE}.csv", f"the table none {NONE}.csv"),
        ("INSERT INTO out SELECT a FROM db", None, f"table t of sqlite:///{{here}}/none.db {NONE}.db"),
        ("INSERT INTO out SELECT a FROM uri", None, None),
        (f"INSERT INTO sink SELECT t.a {JOINED.format('none')}", None,
         "the dimension table none cannot be loaded: there is no file {here}/none.csv"),
        (f"INSERT INTO sink SELECT t.a {JOINED.format('db')}", None,
         f"table t of sqlite:///{{here}}/none.db {NONE}.db"),
        ("INSERT INTO out SELECT a FROM pw", None,
         "the table pw cannot be read: the password cannot be read from {here}/none: No such file or directory"),
        (f"INSERT INTO sink SELECT t.a {JOINED.format('pw')}", None, "the dimension table pw cannot be loaded: "
         "the password cannot be read from {here}/none: No such file or directory"),
        ("INSERT INTO below SELECT a FROM f", None,
         "the table below cannot be written: {here}/some.csv/out: Not a directory"),
        ("INSERT INTO sealed SELECT a FROM f", None,
         "the table sealed cannot be written: /proc/none/out: No such file or directory"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(statement: str, elsewhere: str | None, told: str | None, tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("1\n")
    script = Script()
    script.run(TABLES.replace("{here}", str(tmp_path)) + statement)
    for runs_here, wanted in ((True, told), (False, elsewhere)):
        if wanted is None:
            require_files(script.sinks, runs_here=runs_here)
            continue
        with pytest.raises(SqlError) as caught:
            require_files(script.sinks, runs_here=runs_here)
        assert str(caught.value) == wanted.replace("{here}", str(tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == ["some.csv"]


@pytest.mark.parametrize("arguments", [["job.sql"], ["-e", "SELECT a FROM none"], ["-e", "SELECT COUNT(*) FROM none"]])
def test_it_is_the_last_line_and_beam_is_not_imported(arguments: list[str], tmp_path: Path) -> None:
    tables = TABLES.replace("{here}", str(tmp_path))
    (tmp_path / "job.sql").write_text(f"{tables} INSERT INTO sink SELECT a FROM none;")
    given = [*arguments[:-1], f"{tables} {arguments[-1]}"] if "-e" in arguments else arguments
    program = (
        f"import sys; from rmqio.cli.main import main; status = main({['sql', *given]});"
        " print(status, 'apache_beam' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == f"rmqio sql: the table none cannot be read: there is no file {tmp_path}/none.csv\n"
    assert done.stdout == "2 False\n"
