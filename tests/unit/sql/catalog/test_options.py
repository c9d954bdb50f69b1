"""Options of tables that say where a read begins, what becomes a tag, and whether a job may feed itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.cli.main import main
from rmqio.model import MessageQueue
from rmqio.sql.scripts.script import Script
from rmqio.start import StartFrom
from rmqio.testing import InMemoryCluster
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.running import put, run, stored


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        yield made


def test_a_read_begins_at_given_offsets() -> None:
    script = Script()
    script.run(
        "CREATE TABLE t (a INT) WITH ('topic' = 't', 'scan.startup.mode' = 'specific-offsets', "
        "'scan.startup.specific-offsets' = 'broker:a,queue:0,offset:42; broker: a, partition: 1, offset: 7;');"
    )
    wanted = {MessageQueue("t", "a", 0): 42, MessageQueue("t", "a", 1): 7}
    assert script.catalog.tables["t"].options.start == StartFrom.specific_offsets(wanted)


@pytest.mark.parametrize(("written", "body"), [("true", b'{"v":"x","kind":"red"}'), ("false", b'{"v":"x"}')])
def test_a_column_becomes_the_tag(written: str, body: bytes, cluster: InMemoryCluster) -> None:
    for topic in ("t", "sink"):
        cluster.create_topic(topic, 2)
    put(cluster, "t", {"v": "x", "kind": "red"})
    columns = "(v STRING, kind STRING)"
    run(
        cluster,
        f"CREATE TABLE t {columns} WITH ('topic' = 't'); CREATE TABLE s {columns} WITH ('topic' = 'sink', "
        f"'isDynamicTag' = 'true', 'dynamicTagColumn' = 'kind', 'dynamicTagColumnWriteIncluded' = '{written}', "
        "'keyColumns' = 'v', 'writeKeysToBody' = 'true'); INSERT INTO s SELECT v, kind FROM t;",
    )
    (message,) = stored(cluster, "sink")
    assert (message.tags, message.keys, message.body) == ("red", ("x",), body)


FEEDBACK = """
CREATE TABLE a (v STRING) WITH ('topic' = 'a'{read});
CREATE TABLE b (v STRING) WITH ('topic' = 'b');
CREATE TABLE again (v STRING) WITH ('topic' = 'a'{written});
"""
SAID = (
    "the job would feed itself: it reads the topic a, and again writes it. Write another topic; or, if the rows that "
    "are written do not pass the query again, give again 'sink.allow-feedback' = 'true'; or end the read by --stop or "
    "endTime"
)


@pytest.mark.parametrize(
    ("statements", "read", "written", "flags", "is_refused"),
    [
        ("INSERT INTO again SELECT v FROM a", "", "", [], True),
        ("INSERT INTO b SELECT v FROM a; INSERT INTO again SELECT v FROM b", "", "", [], True),
        ("INSERT INTO b SELECT v FROM a; INSERT INTO b SELECT v FROM again", "", "", [], False),
        ("INSERT INTO again SELECT v FROM b", "", "", [], False),
        ("INSERT INTO again SELECT v FROM a", "", ", 'sink.allow-feedback' = 'true'", [], False),
        ("INSERT INTO again SELECT v FROM a", ", 'endTime' = '2024-01-01 00:00:00'", "", [], False),
        ("INSERT INTO again SELECT v FROM a", "", "", ["--stop=latest"], False),
    ],
)
def test_a_job_does_not_feed_itself(
    statements: str, read: str, written: str, flags: list[str], is_refused: bool,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "job.sql"
    path.write_text(f"{FEEDBACK.format(read=read, written=written)}{statements};")
    assert main(["sql", str(path), "--check", *flags]) == (2 if is_refused else 0)
    err = capsys.readouterr().err
    said = (
        SAID.replace("topic a, and again", "topic b, and b").replace("give again", "give b")
        if ";" in statements
        else SAID
    )
    assert (said in err, "^" in err) == (is_refused, is_refused)
