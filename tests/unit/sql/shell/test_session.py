"""Sessions on a cluster in memory: what statements other than queries print, and what they leave."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.shell.session import End, is_complete
from rmqio.testing import InMemoryCluster
from tests.unit.sql.shell.support import ORDERS, Shell, put

# ---- errors ----


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "SELECT nme FROM orders;",
            "line 1:8: there is no column nme",
        ),
        ("SELECT 1;\nSELECT id FROM order_s;", "line 2:16: there is no table order_s: did you mean 'orders'?\n"),
        ("SELEC 1;", "line 1:1: unexpected SELEC: "),
        (
            "SET 'scan.startup.mod' = 'x';",
            "line 1:1: there is no setting 'scan.startup.mod': did you mean 'scan",
        ),
        (
            "SET 'scan.startup.mode' = 'first';",
            "line 1:27: scan.startup.mode is 'first'; it can be earliest, latest, group or timestamp:TIME\n",
        ),
        (
            "SET 'scan.bounded.mode' = 'timestamp:x';",
            "line 1:27: scan.bounded.mode is 'timestamp:x': time 'x' is neither",
        ),
        ("DESCRIBE nothing;", "line 1:10: there is no table nothing"),
        ("SHOW CREATE VIEW orders;", "line 1:18: orders is a table: SHOW CREATE TABLE\n"),
        (
            "SHOW TABLES LIKE 'o%';",
            "line 1:1: SHOW TABLES, SHOW VIEWS and SHOW FUNCTIONS take nothing else: they",
        ),
        ("SHOW VIEWS NOT LIKE 'o%';", "line 1:1: SHOW TABLES, SHOW VIEWS and SHOW FUNCTIONS take nothing else"),
        ("SHOW FUNCTIONS FROM c;", "line 1:1: SHOW TABLES, SHOW VIEWS and SHOW FUNCTIONS take nothing else"),
        (
            "SHOW CATALOGS;",
            "line 1:1: there are no catalogs and databases to show: --catalog gives tables, and",
        ),
        ("SELECT 1;\nshow current database;", "line 2:1: there are no catalogs and databases to show"),
        ("SHOW COLUMNS FROM orders;", "line 1:1: SHOW COLUMNS is not supported: DESCRIBE t shows"),
        ("SHOW JOBS;", "line 1:1: SHOW JOBS is not supported: rmqio sql ps --jobs DIR shows"),
        ("SHOW USER FUNCTIONS;", "line 1:1: SHOW USER FUNCTIONS is not supported: SHOW FUNCTIONS shows"),
        ("SHOW CREATE FUNCTION f;", "line 1:1: SHOW CREATE takes TABLE or VIEW, and a name\n"),
        ("SHOW TOPICS;", "line 1:6: unexpected TOPICS: expected CREATE, FUNCTIONS, TABLES or VIEWS"),
        (
            "DESCRIBE EXTENDED orders;",
            "line 1:1: DESCRIBE takes a table or a view: DESCRIBE t shows its columns",
        ),
        ("desc formatted `orders`;", "line 1:1: DESCRIBE takes a table or a view"),
        ("DESCRIBE TABLE orders;", "line 1:1: DESCRIBE takes a table or a view"),
        ("DESCRIBE extended;", "line 1:10: there is no table extended"),
        ("DROP VIEW v;", "line 1:11: there is no view v"),
        ("CREATE TABLE orders (a INT) WITH ('topic' = 't');", "line 1:14: there is a table orders already\n"),
        ("SOURCE nothing.sql", "cannot read nothing.sql: No such file or directory"),
    ],
)
def test_an_error_shows_its_place_and_the_session_goes_on(shell: Shell, text: str, message: str) -> None:
    assert shell.error(text).startswith(message)
    assert shell.rows("SELECT 1;") == [("1",)]


def test_a_create_that_is_refused_leaves_its_name_free(shell: Shell) -> None:
    assert "there is no column nothing" in shell.error("CREATE VIEW v AS SELECT nothing FROM orders;")
    shell("CREATE VIEW v AS SELECT id FROM orders;")
    wrong, right = "WATERMARK FOR a AS a", "PRIMARY KEY (a) NOT ENFORCED"
    assert "the column of WATERMARK FOR must be a TIMESTAMP" in shell.error(
        f"CREATE TABLE x (a INT, {wrong}) WITH ('topic' = 'x');"
    )
    shell(f"CREATE TABLE x (a INT NOT NULL, {right}) WITH ('topic' = 'x');")
    assert "already" in shell.error("CREATE VIEW v AS SELECT nothing FROM orders;")
    assert shell.rows("SELECT * FROM v LIMIT 1;") == [("0",)]


def test_an_error_in_a_view_is_shown_where_the_view_was_created(shell: Shell) -> None:
    shell("CREATE VIEW v AS SELECT id FROM orders; DROP TABLE orders;")
    assert shell.error("SELECT id FROM v;") == (
        "an earlier statement:1:33: there is no table orders; there are v\n"
        "  CREATE VIEW v AS SELECT id FROM orders;\n"
        "                                  ^^^^^^"
    )


# ---- the catalog ----


def test_what_there_is_can_be_shown(shell: Shell) -> None:
    shell("CREATE VIEW v AS SELECT id, id * 1.5 AS more FROM orders;")
    assert shell("SHOW TABLES;") == ["table", "------", "orders"]
    assert shell("SHOW VIEWS;") == ["view", "----", "v"]
    listed = shell("SHOW FUNCTIONS;")
    assert listed[:2] == ["function of SQL", "---------------"]
    assert len(listed) < 100
    assert max(map(len, listed)) <= 80
    functions = {name for line in listed[2:] for name in line.split()}
    assert {"COALESCE", "COUNT", "UPPER", "ROW_NUMBER", "RANK", "NTILE", "LAG", "LEAD", "FIRST_VALUE"} <= functions
    assert not {"COLLECT", "ARRAY", "MAP", "NEGATE", "LIKE"} & functions  # they are refused
    assert shell("SHOW CREATE TABLE orders;") == [ORDERS.format(more="")]
    assert shell("SHOW CREATE VIEW v;") == ["CREATE VIEW v AS SELECT id, id * 1.5 AS more FROM orders;"]
    assert shell("DESCRIBE v;")[2:] == ["id      BIGINT", "more    DECIMAL(22, 1)"]
    options = "'connector' = 'jdbc', 'url' = 'sqlite:///x', 'table-name' = 'c', 'username' = 'me', 'password' = {}"
    given, shown = (options.format(each) for each in ("'it''s'", "'***'"))
    shell(f"CREATE TABLE c (id BIGINT) WITH ({given});")
    assert shell("SHOW CREATE TABLE c;") == [f"CREATE TABLE c (id BIGINT) WITH ({shown});"]


@pytest.mark.timeout(20)
def test_a_long_word_is_shown_at_once(shell: Shell) -> None:
    statement = f"CREATE TABLE long (a INT COMMENT '{'y' * 50_000}') WITH ('topic' = 'long');"
    shell(statement)
    assert shell("SHOW CREATE TABLE long;") == [statement]


def test_a_table_is_described(shell: Shell) -> None:
    shell(
        "CREATE TABLE t (id BIGINT NOT NULL, 名 STRING, ts TIMESTAMP(3), day AS CAST(ts AS DATE), tags STRING METADATA,"
        " delay INT METADATA FROM 'delay_level', PRIMARY KEY (id) NOT ENFORCED, WATERMARK FOR ts AS ts - INTERVAL '5'"
        " SECOND) WITH ('topic' = 'orders');"
    )
    assert shell("DESC t;") == [
        "column  type          null      more",
        "------  ------------  --------  -------------------------------------",
        "id      BIGINT        NOT NULL  PRIMARY KEY",
        "名      STRING",
        "ts      TIMESTAMP(3)            WATERMARK AS ts - INTERVAL '5' SECOND",
        "day     DATE                    AS CAST(ts AS DATE)",
        "tags    STRING                  METADATA FROM 'tags'",
        "delay   INT                     METADATA FROM 'delay_level'",
    ]


def test_the_catalog_keeps_what_is_created_and_forgets_what_is_dropped(
    cluster: InMemoryCluster, tmp_path: Path
) -> None:
    path = tmp_path / "catalog.sql"
    first = Shell(cluster, path)
    first(
        ORDERS.format(more="")
        + "CREATE TABLE gone (a INT) WITH ('topic' = 't'); CREATE VIEW v AS SELECT id FROM orders;"
    )
    first("CREATE TEMPORARY TABLE here (a INT) WITH ('topic' = 't'); DROP TABLE gone; DROP TABLE IF EXISTS nothing;")
    first("CREATE TABLE IF NOT EXISTS orders (other INT) WITH ('topic' = 't');")
    assert first("SHOW TABLES;")[2:] == ["here", "orders"]
    second = Shell(cluster, path)
    assert second("SHOW TABLES;")[2:] == ["orders"]
    assert second("SHOW CREATE TABLE orders;") == [ORDERS.format(more="")]
    put(cluster, 8, 0)
    assert second.rows("SELECT * FROM v LIMIT 1;") == [("8",)]


def test_settings_are_shown_and_reset(shell: Shell) -> None:
    shell("SET 'table.exec.state.ttl' = '1 h'; SET 'scan.startup.mode' = 'latest';")
    assert shell("SET;")[2:] == [
        "scan.bounded.mode     (unbounded; with a shuffle: latest)",
        "scan.startup.mode     latest",
        "table.exec.state.ttl  1 h",
    ]
    shell("RESET 'table.exec.state.ttl';")
    assert shell.session.script.settings.ttl_ms == 0
    shell("RESET;")
    assert shell("SET;")[2:] == [
        "scan.bounded.mode  (unbounded; with a shuffle: latest)",
        "scan.startup.mode  (as the table says, else earliest)",
    ]


def test_explain_shows_a_plan_and_runs_nothing(shell: Shell) -> None:
    shell("CREATE TABLE large (id BIGINT) WITH ('topic' = 'more');")
    lines = shell("EXPLAIN INSERT INTO large SELECT id FROM orders WHERE id > 3;")
    assert lines[0].startswith("Insert into large (topic more, json)")
    assert shell("EXPLAIN SELECT id FROM orders;")[0].startswith(("Read orders", "Select"))
    assert not shell.session.script.sinks


def test_a_select_knows_the_functions_that_were_created(shell: Shell) -> None:
    shell("CREATE FUNCTION f AS 'tests.unit.sql.user_functions:same_int' LANGUAGE PYTHON;")
    assert shell("SELECT f(42) AS x;")[:3] == [" x", "--", "42"]


# ---- commands ----


def test_a_file_is_run(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "a file.sql"
    file.write_text("\ufeff-- first\nSELECT 1 AS a;\nHELP;\nSELECT id FROM gone;\n")
    message = shell.error(f"SOURCE '{file}';")
    assert message.startswith(f"{file}:4:16: there is no table gone")
    assert shell.lines[:3] == ["a", "-", "1"]
    assert "QUIT" in shell.lines[-1]
    file.write_text(f"SOURCE {file}")
    assert shell.error(f"SOURCE {file}") == f"{file} runs itself by SOURCE"


@pytest.mark.parametrize("text", ["quit", "EXIT;", " Quit ; "])
def test_quit_ends(shell: Shell, text: str) -> None:
    with pytest.raises(End):
        shell(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", True), ("SELECT 1", False), ("SELECT 1;", True), ("SELECT ';", False), ("help", True), ("quit", True),
        ("source x.sql", True), ("SELECT 1; help", True), ("SELECT 1;\n-- then", False), ("helpful", False),
        ("SELECT 1; -- one", True), ("SELECT 1; /* one */", True), ("SELECT 1; /* one", False), ("-- one", False),
    ],
)  # fmt: skip
def test_a_statement_is_complete_with_its_semicolon(text: str, wanted: bool) -> None:
    assert is_complete(text) is wanted
