"""Sessions on a cluster in memory: what statements print, and what they leave."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio import MessageQueue
from rmqio.sql.catalog.file import CatalogFile
from rmqio.sql.errors import SqlError
from rmqio.sql.shell.session import End, Session, is_complete
from rmqio.start import StartFrom, StopAt
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster

ORDERS = "CREATE TABLE orders (id BIGINT, customer STRING) WITH ('topic' = 'orders', 'consumerGroup' = 'g'{more});"
STORED_MS = 1_700_000_000_000
_OPEN: list[Session] = []
LATEST = "SET 'scan.bounded.mode' = 'latest';"


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("orders", "more"):
            made.create_topic(topic, 2)
        yield made
        while _OPEN:
            _OPEN.pop().close()


class Shell:
    """A session, and what it has printed."""

    def __init__(self, cluster: InMemoryCluster, catalog: Path | None = None, **given: Any) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        arguments = argparse.Namespace(**{"name_server": "n", "start": None, "stop": None, "runner": "r"} | given)
        file = None if catalog is None else CatalogFile(catalog)
        self.session = Session(
            arguments,
            lambda text: self.lines.extend(text.splitlines()),
            self.notes.append,
            file,
            client_factory=InMemoryClientFactory(cluster.name),
        )
        self.session.load()
        _OPEN.append(self.session)

    def __call__(self, text: str) -> list[str]:
        """Runs statements and returns the lines that they print, without blanks at the end of lines."""
        self.lines.clear()
        self.notes.clear()
        self.session.run(text)
        return [line.rstrip() for line in self.lines]

    def error(self, text: str) -> str:
        with pytest.raises(SqlError) as caught:
            self(text)
        return str(caught.value)

    def rows(self, text: str) -> list[tuple[str, ...]]:
        """Returns the cells of the rows that statements print."""
        return [tuple(line.split()) for line in self(text)[2:]]


@pytest.fixture
def shell(cluster: InMemoryCluster) -> Shell:
    for number in range(10):
        put(cluster, number, number % 2)
    made = Shell(cluster)
    made(ORDERS.format(more=""))
    return made


def put(cluster: InMemoryCluster, number: int, queue: int, topic: str = "orders", **fields: Any) -> None:
    body = json.dumps({"id": number, "customer": f"c{number % 3}"}).encode()
    cluster.append(topic, body, queue_id=queue, store_ms=STORED_MS + number, **fields)


def client_of(cluster: InMemoryCluster) -> Any:
    return contextlib.closing(InMemoryClientFactory(cluster.name).queue_client())


# ---- queries ----


def test_a_select_begins_at_the_earliest_message_and_ends_at_its_limit(shell: Shell) -> None:
    assert shell("SELECT id, UPPER(customer) AS customer FROM orders LIMIT 3;") == [
        "id  customer",
        "--  --------",
        " 0  C0",
        " 1  C1",
        " 2  C2",
    ]
    assert re.fullmatch(r"3 rows, \d+\.\d s", shell.notes[0])
    assert shell.rows("SELECT id FROM orders WHERE id > 3 LIMIT 2 OFFSET 1;") == [("5",), ("6",)]
    assert shell("SELECT id FROM orders LIMIT 0;") == ["id", "--"]


def test_the_rows_of_queues_come_in_the_order_of_their_time(cluster: InMemoryCluster) -> None:
    for number in range(200):
        put(cluster, number, 0 if number < 150 else 1)
    shell = Shell(cluster, stop=StopAt.latest())
    shell(ORDERS.format(more=""))
    assert [int(row[0]) for row in shell.rows("SELECT id FROM orders;")] == list(range(200))


def test_a_query_without_an_end_prints_what_is_stored_later(cluster: InMemoryCluster, shell: Shell) -> None:
    query = threading.Thread(target=shell, args=("SELECT id FROM orders WHERE id > 8 LIMIT 3;",))
    query.start()
    while "9" not in [line.strip() for line in shell.lines]:
        assert query.is_alive()
        query.join(0.01)
    for number in (10, 11):
        put(cluster, number, number % 2)
    query.join(30)
    assert not query.is_alive()
    assert sorted(int(line) for line in shell.lines[2:]) == [9, 10, 11]


@pytest.mark.parametrize("query", ["SELECT id FROM orders WHERE id < 0", "SELECT 1 AS id WHERE FALSE"])
def test_a_query_without_rows_shows_its_columns(shell: Shell, query: str) -> None:
    assert shell(f"{LATEST} {query};") == ["id", "--"]
    assert shell.notes[-1].startswith("0 rows, ")


def test_where_a_select_begins_and_ends_can_be_set(cluster: InMemoryCluster, shell: Shell) -> None:
    count = "SELECT id FROM orders;"
    with client_of(cluster) as client:
        for queue in client.queues("orders"):
            client.commit_offset("g", queue, 4)
        assert len(shell.rows(f"{LATEST} {count}")) == 10
        assert len(shell.rows(f"SET 'scan.startup.mode' = 'group'; {count}")) == 2
        assert len(shell.rows(f"SET 'scan.startup.mode' = 'latest-offset'; {count}")) == 0
        assert len(shell.rows(f"RESET 'scan.startup.mode'; {count}")) == 10
        shell("DROP TABLE orders;" + ORDERS.format(more=", 'scan.startup.mode' = 'latest'"))
        assert len(shell.rows(count)) == 0
        assert len(shell.rows(f"SET 'scan.startup.mode' = 'earliest'; {count}")) == 10
        # Nothing was committed.
        assert [client.committed_offset("g", queue) for queue in client.queues("orders")] == [4, 4]


def test_the_command_line_says_where_tables_begin_that_do_not_say_it(cluster: InMemoryCluster) -> None:
    put(cluster, 1, 0)
    shell = Shell(cluster, start=StartFrom.latest(), stop=StopAt.latest())
    shell(ORDERS.format(more=""))
    assert shell.rows("SELECT id FROM orders;") == []


def test_a_union_reads_several_tables_and_a_topic_once(cluster: InMemoryCluster, shell: Shell) -> None:
    put(cluster, 77, 1, "more")
    shell("CREATE TABLE more (id INT) WITH ('topic' = 'more');")
    query = "SELECT id FROM orders WHERE id < 2 UNION ALL SELECT id + 100 FROM orders WHERE id < 1"
    found = shell.rows(f"{LATEST} {query} UNION ALL SELECT id FROM more UNION ALL SELECT 5;")
    assert sorted(int(each) for (each,) in found) == [0, 1, 5, 77, 100]


def test_values_and_constants_need_no_topic(shell: Shell) -> None:
    assert shell.rows("VALUES (1, 'a'), (2, NULL);") == [("1", "a"), ("2", "NULL")]
    assert shell.rows("SELECT 7 / 2 AS x;") == [("3",)]
    assert shell.error("SELECT 1 / 0;") == "division by zero"


@pytest.mark.parametrize("option", ["skip", "dead-letter"])
def test_bad_rows_are_left_out_and_counted(cluster: InMemoryCluster, option: str) -> None:
    for number, body in enumerate((b'{"id": 1}', b"no json", b'{"id": "x"}', b'{"id": 2}')):
        cluster.append("orders", body, queue_id=number % 2, store_ms=STORED_MS + number)
    shell = Shell(cluster)
    shell(ORDERS.format(more=f", 'on-error' = '{option}', 'dead-letter-topic' = 'more'"))
    assert shell.rows(f"{LATEST} SELECT id FROM orders;") == [("1",), ("2",)]
    assert "queue orders/broker-a/1, offset 0: " in shell.notes[0]
    assert shell.notes[1] == "2 bad rows were left out"
    for number in range(2):
        assert not cluster.stored_queue(MessageQueue("more", "broker-a", number)).slice(0, 9)


def test_a_bad_row_ends_the_query_if_the_table_says_nothing_else(cluster: InMemoryCluster) -> None:
    put(cluster, 1, 0)
    cluster.append("orders", b"no json", queue_id=0, store_ms=STORED_MS + 2)
    shell = Shell(cluster)
    shell(ORDERS.format(more=""))
    assert shell.error("SELECT id FROM orders;").startswith("queue orders/broker-a/0, offset 1: ")
    assert shell.lines[2:] == [" 1"]  # what came before was printed


def test_tags_and_metadata_are_read(cluster: InMemoryCluster) -> None:
    for number in range(4):
        put(cluster, number, 0, tags="ab"[number % 2])
    shell = Shell(cluster)
    shell(
        "CREATE TABLE t (id INT, place BIGINT METADATA FROM 'offset' VIRTUAL, tags STRING METADATA, double AS id * 2)"
        " WITH ('topic' = 'orders', 'tag' = 'b');"
    )
    assert shell.rows(f"{LATEST} SELECT * FROM t;") == [("1", "1", "b", "2"), ("3", "3", "b", "6")]


def test_an_endless_group_by_is_refused_with_the_reason(shell: Shell) -> None:
    query = "SET 'scan.bounded.mode' = 'unbounded'; SELECT customer, COUNT(*) FROM orders GROUP BY customer;"
    assert shell.error(query) == (
        "line 1:40: a query with a shuffle needs inputs that end, here: RESET 'scan.bounded.mode' reads what the topics"
        " hold now; INSERT INTO runs an endless job\n"
        + " " * 41
        + query.partition("; ")[2]
        + "\n"
        + " " * 41
        + "^" * 55
    )


def test_times_are_those_of_the_session(shell: Shell) -> None:
    query = "SELECT CAST(TIMESTAMP '2024-01-31 12:00:00' AS TIMESTAMP_LTZ(0)) AS instant, 1 AS n;"
    assert shell(query)[2] == "2024-01-31 12:00:00Z  1"
    shell("SET 'table.local-time-zone' = 'Asia/Shanghai';")
    assert shell(query)[2] == "2024-01-31 04:00:00Z  1"


def test_a_statement_set_holds_nothing_else(shell: Shell) -> None:
    shell("CREATE TABLE large (id BIGINT) WITH ('topic' = 'more'); BEGIN STATEMENT SET;")
    shell("INSERT INTO large SELECT id FROM orders;")
    assert len(shell.session.script.sinks) == 1
    assert "a statement set holds INSERT INTO" in shell.error("SELECT id FROM orders;")
    assert "a statement set holds INSERT INTO" in shell.error("SHOW TABLES;")


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
        ("DROP VIEW v;", "line 1:11: there is no view v"),
        ("CREATE TABLE orders (a INT) WITH ('topic' = 't');", "line 1:14: there is a table orders already\n"),
        ("SOURCE nothing.sql", "cannot read nothing.sql: No such file or directory"),
    ],
)
def test_an_error_shows_its_place_and_the_session_goes_on(shell: Shell, text: str, message: str) -> None:
    assert shell.error(text).startswith(message)
    assert shell.rows("SELECT 1;") == [("1",)]


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
    assert {("COALESCE",), ("COUNT",), ("UPPER",)} <= set(shell.rows("SHOW FUNCTIONS;"))
    assert shell("SHOW CREATE TABLE orders;") == [ORDERS.format(more="")]
    assert shell("SHOW CREATE VIEW v;") == ["CREATE VIEW v AS SELECT id, id * 1.5 AS more FROM orders;"]
    assert shell("DESCRIBE v;")[2:] == ["id      BIGINT", "more    DECIMAL(22, 1)"]
    options = "'connector' = 'jdbc', 'url' = 'sqlite:///x', 'table-name' = 'c', 'username' = 'me', 'password' = {}"
    given, shown = (options.format(each) for each in ("'it''s'", "'******'"))
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
        "column  type",
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
