"""Rows that no message can have are bad rows: `on-error` says what becomes of them, and the others are sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.dead_letters.letters import read_letter
from rmqio.sql.job import summary
from rmqio.testing import InMemoryCluster
from tests.unit.sql.job_support import cluster, job, put, stored, table

__all__ = ["cluster"]

TABLES = """
CREATE TABLE t (a INT, `to` STRING, label STRING, k STRING, p MAP<STRING, STRING>, d INT, at TIMESTAMP_LTZ(3)) WITH (
  'topic' = 't'{more}
);
CREATE TABLE sink (
  a INT, `to` STRING METADATA FROM 'topic', label STRING METADATA FROM 'tags', k STRING METADATA FROM 'keys',
  p MAP<STRING, STRING> METADATA FROM 'properties', d INT METADATA FROM 'delay_level',
  at TIMESTAMP_LTZ(3) METADATA FROM 'deliver_at'
) WITH ('topic' = 'sink');
INSERT INTO sink SELECT * FROM t;
"""
BAD: list[tuple[dict[str, Any], str]] = [
    ({"to": ""}, "topic name '' is illegal: it is empty"),
    ({"to": "x y"}, "topic name 'x y' is illegal: only letters, digits"),
    ({"label": "\x01"}, "message property 'TAGS': holds the separator"),
    ({"k": "a\x02"}, "message property 'KEYS': holds the separator"),
    ({"p": {"": "x"}}, "message property '': its name is empty"),
    ({"p": {"KEYS": "x"}}, "message property 'KEYS': the name is reserved"),
    ({"p": {"x": "y" * 40_000}}, "message properties take 40003 bytes; at most"),
    ({"d": 20}, "delay_level 20 is not a level from 1 to 18"),
    ({"d": 1, "at": "2024-01-01T00:00:00Z"}, "message has both delay_level and deliver_at_ms"),
    ({"at": "1970-01-01T00:00:00Z"}, "deliver_at_ms 0 is not a Unix time in milliseconds"),
]


def test_they_go_to_the_dead_letters_one_by_one(cluster: InMemoryCluster) -> None:
    bad = [{"a": n, **row} for n, (row, _) in enumerate(BAD)]
    good = [{"a": 100 + n, "label": "l", "k": "a b", "p": {"x": "y"}} for n in range(10)]
    put(cluster, "t", *(row for pair in zip(bad, good, strict=True) for row in pair))
    job(cluster, TABLES.format(more=", 'on-error' = 'dead-letter', 'dead-letter-topic' = 'letters'"))
    assert sorted(json.loads(record.body)["a"] for record in stored(cluster, "sink")) == list(range(100, 110))
    reasons = {json.loads(each.body)["a"]: each.properties["RMQIO_ERROR"] for each in stored(cluster, "letters")}
    assert sorted(reasons) == list(range(len(BAD)))
    for number, (_, reason) in enumerate(BAD):
        assert reason in reasons[number]


def test_the_error_of_a_job_has_the_place_of_the_row(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1}, {"a": 2, "d": 19})
    with pytest.raises(Exception, match=r"queue t/broker-a/1, offset 0: delay_level 19 is not .*INSERT INTO sink"):
        job(cluster, TABLES.format(more=""))


REFUSED = {
    "rows": ("SELECT a, b || b FROM t", "message body has"),
    "groups": ("SELECT a, MAX(b || b) FROM t GROUP BY a", "message body has"),
    "a topic that is not there": ("SELECT a, b, CASE a WHEN 5 THEN 'nowhere' END FROM t", "nowhere"),
}


@pytest.mark.parametrize(
    ("name", "on_error"), [*((each, "dead-letter") for each in REFUSED), ("rows", "skip"), ("rows", "fail")]
)
def test_what_is_refused_when_it_is_sent(cluster: InMemoryCluster, name: str, on_error: str) -> None:
    """Its dead letter has its keys, and no more of its body than can be sent."""
    query, reason = REFUSED[name]
    put(cluster, "t", {"a": 1, "b": "x"}, {"a": 5, "b": "y" * 2_100_000}, {"a": 2, "b": "z"})
    more = {"on_error": on_error} | ({"dead_letter_topic": "letters"} if on_error == "dead-letter" else {})
    to = ", `to` STRING METADATA FROM 'topic'" if name.startswith("a topic") else ""
    script = (
        f"{table(**more)} CREATE TABLE sink (a INT, b STRING{to}) WITH ('topic' = 'sink', 'keyColumns' = 'a');"
        f"\nINSERT INTO sink {query};"
    )
    if on_error == "fail":
        with pytest.raises(Exception, match=rf"cannot write to topic .*{reason}.* \(INSERT INTO sink, line 2\)"):
            job(cluster, script)
        return
    result = job(cluster, script)
    assert sorted(json.loads(record.body)["a"] for record in stored(cluster, "sink")) == [1, 2]
    assert summary(result) == "2 rows written, 1 failed"
    letters = stored(cluster, "letters")
    assert len(letters) == (on_error == "dead-letter")
    for letter in letters:
        assert letter.keys == ("5",)
        assert reason in letter.properties["RMQIO_ERROR_REASON"]
        assert letter.body.startswith(b'{"a":5,"b":"')
        assert bool(read_letter(letter).why_not) == (len(letter.body) == 65536)
