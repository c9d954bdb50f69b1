"""Queries of sessions on a cluster in memory: the rows that they print, where they begin and end."""

from __future__ import annotations

import contextlib
import pickle
import re
import threading
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio import MessageQueue
from rmqio.cli.main import make_parser, parse
from rmqio.sql.shell import processes, worker
from rmqio.sql.shell.processes import Work
from rmqio.sql.shell.session import End
from rmqio.start import StartFrom, StopAt
from rmqio.testing import InMemoryCluster
from tests.helpers.waiting import until
from tests.unit.sql.shell.support import LATEST, ORDERS, STORED_MS, Shell, client_of, put


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
    until(lambda: "9" in map(str.strip, shell.lines) or not query.is_alive(), "the row that is there")
    for number in (10, 11):
        put(cluster, number, number % 2)
    until(lambda: not query.is_alive(), "the end of the query", progress=lambda: len(shell.lines))
    assert sorted(int(line) for line in shell.lines[2:]) == [9, 10, 11]


def test_a_query_of_a_script_ends_with_what_the_topics_hold(cluster: InMemoryCluster, shell: Shell) -> None:
    """Nobody types Ctrl-C: the statements behind it are to run, too."""
    shell.session.is_script = True
    assert len(shell.rows("SELECT id FROM orders;")) == 10
    assert shell.rows("SELECT id FROM orders WHERE id > 7; SELECT 'end' AS id;")[:2] == [("8",), ("9",)]
    assert shell.rows("SET 'scan.bounded.mode' = 'unbounded'; SELECT id FROM orders LIMIT 1;") == [("0",)]


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
        assert "reads none of 10 messages" in shell.notes[0]
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
    assert shell.error("SELECT 1 / x FROM (VALUES (0)) AS v (x);") == "1 / 0: division by zero"
    assert (
        shell.error("SELECT 1 / x FROM (VALUES (1), (0)) AS v (x);")
        == "row 2 of the statement: 1 / 0: division by zero"
    )
    assert "1:8: this always fails: 1 / 0: division by zero" in shell.error("SELECT 1 / 0;")


@pytest.mark.parametrize("option", ["skip", "dead-letter"])
def test_bad_rows_are_left_out_and_counted(cluster: InMemoryCluster, option: str) -> None:
    for number, body in enumerate((b'{"id": 1}', b"no json", b'{"id": "x"}', b'{"id": 2}')):
        cluster.append("orders", body, queue_id=number % 2, store_ms=STORED_MS + number)
    shell = Shell(cluster)
    letters = "" if option == "skip" else ", 'dead-letter-topic' = 'more'"
    shell(ORDERS.format(more=f", 'on-error' = '{option}'{letters}"))
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


def in_this_process(work: Work) -> int:
    """Runs a statement as its process would, with what the process gets."""
    return worker.run(pickle.loads(pickle.dumps(work)))


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("SELECT customer, COUNT(*) AS n\nFROM orders GROUP BY customer", "2:22: INSERT INTO counts: GROUP BY without"),
        ("SELECT a.customer, b.id FROM orders a\nLEFT JOIN orders b ON a.id = b.id", "1:49: LEFT JOIN of rows that do"),
        ("SELECT customer, id FROM orders ORDER BY id", "1:61: ORDER BY needs an input that ends"),
    ],
)  # fmt: skip
def test_what_the_job_of_a_statement_cannot_do_is_refused_at_its_place(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], query: str, place: str
) -> None:
    monkeypatch.setattr(processes, "run", in_this_process)
    shell.session.arguments = parse(make_parser(), ["sql", "--name_server=n:1", "--runner=DirectRunner"])
    shell("CREATE TABLE counts (customer STRING, n BIGINT) WITH ('topic' = 'more');")
    text = f"INSERT INTO counts {query};"
    with pytest.raises(processes.StatementFailed) as failed:  # its process has said why: nothing is said after that
        shell(text)
    assert failed.value.status == 2
    message = capsys.readouterr().err
    assert message.startswith(f"rmqio sql: line {place}")
    line, column = (int(each) for each in place.split(":")[:2])
    _, shown, carets = message.splitlines()
    assert shown == f"  {text.splitlines()[line - 1]}"
    assert carets.index("^") == column + 1


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("{0} SELECT 1;", ["latest"]),
        ("{0} {0}", ["latest", None]),
        ("{0} -- the last one", [None]),
        ("SELECT 1; {0} QUIT", [None]),
        ("SOURCE {1};", [None]),
        ("SOURCE {1}; SHOW TABLES;", ["latest"]),
        ("BEGIN STATEMENT SET; {0} {0} END; SELECT 1;", ["latest"]),
        ("INSERT INTO large VALUES (1); SELECT 1;", [None]),
        ("SET 'scan.bounded.mode' = 'timestamp:2024-01-01T00:00:00Z'; {0} SELECT 1;", ["timestamp"]),
        ("SET 'scan.bounded.mode' = 'unbounded'; {0}", [None]),
    ],
)
def test_an_insert_of_a_script_ends_if_statements_are_behind_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, stops: list[str | None]
) -> None:
    """Else these would never run, as those behind a SELECT."""
    works: list[Work] = []

    def run(work: Work) -> int:
        works.append(work)
        return 0

    monkeypatch.setattr(processes, "run", run)
    shell("CREATE TABLE large (id BIGINT) WITH ('topic' = 'more');")
    shell.session.is_script = True
    insert = "INSERT INTO large SELECT id FROM orders;"
    (tmp_path / "a.sql").write_text(insert)
    with contextlib.suppress(End):
        shell(text.format(insert, tmp_path / "a.sql"))
    assert [each.arguments.stop and each.arguments.stop.kind for each in works] == stops


def test_an_endless_insert_before_statements_of_a_script_is_refused(shell: Shell) -> None:
    shell("CREATE TABLE large (id BIGINT) WITH ('topic' = 'more'); SET 'scan.bounded.mode' = 'unbounded';")
    shell.session.is_script = True
    message = shell.error("INSERT INTO large SELECT id FROM orders; SELECT 1;")
    assert message.startswith("INSERT INTO large never ends, and statements are behind it: RESET")


def test_a_statement_that_would_feed_itself_is_refused_at_its_place(shell: Shell) -> None:
    message = shell.error("SELECT 1;\nINSERT INTO orders SELECT id + 1, customer FROM orders;")
    assert message.startswith("line 2:13: the job would feed itself: it reads the topic orders, and orders writes it")


def test_times_are_those_of_the_session(shell: Shell) -> None:
    query = "SELECT CAST(TIMESTAMP '2024-01-31 12:00:00' AS TIMESTAMP_LTZ(0)) AS instant, 1 AS n;"
    assert shell(query)[2] == "2024-01-31 12:00:00Z  1"
    shell("SET 'table.local-time-zone' = 'Asia/Shanghai';")
    assert shell(query)[2] == "2024-01-31 04:00:00Z  1"


def test_a_statement_set_holds_nothing_else(shell: Shell) -> None:
    shell("CREATE TABLE large (id BIGINT) WITH ('topic' = 'more'); BEGIN STATEMENT SET;")
    shell("INSERT INTO large SELECT id FROM orders;")
    assert len(shell.session.script.sinks) == 1
    assert "a statement set has only INSERT INTO" in shell.error("SELECT id FROM orders;")
    assert "a statement set has only INSERT INTO" in shell.error("SHOW TABLES;")
