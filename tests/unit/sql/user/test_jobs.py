"""Jobs with functions in Python and UNNEST, on the Direct runner and a cluster in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.sql.compile.aggregation import Merger
from rmqio.sql.compile.description import Fragment, FromRows, Step, ToGroups
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.planning.plan import Aggregate, Calc
from rmqio.sql.rows import pack
from rmqio.testing import InMemoryCluster
from tests.unit.sql.job_support import cluster, job, put, rows, stored
from tests.unit.sql.user.test_functions import MODULE, plan

__all__ = ["cluster"]

CREATED = "".join(
    f"CREATE FUNCTION {name} AS '{MODULE}.{name}' LANGUAGE PYTHON;"
    for name in ("clean", "words", "Longest", "Mean", "Numbers", "Rows")
)
TEXTS = "CREATE TABLE t (a INT, b STRING, tags ARRAY<STRING>) WITH ('topic' = 't'{});"
LETTERS = ", 'on-error' = 'dead-letter', 'dead-letter-topic' = 'letters'"
SINK = "CREATE TABLE sink (a STRING, b STRING) WITH ('topic' = 'sink');"


def test_rows_of_one_message_have_ids_of_their_own_that_stay(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "tags": ["x", "y", "x"]}, {"a": 2, "tags": ["z"]})
    statement = (
        f"{TEXTS.format('')} {SINK} INSERT INTO sink SELECT CAST(a AS STRING), tag FROM t, UNNEST(tags) AS u (tag);"
    )
    for _ in range(2):
        job(cluster, statement)
    found = [(json.loads(each.body)["b"], each.get_property("UNIQ_KEY")) for each in stored(cluster, "sink")]
    assert len(found) == 8
    assert len(set(found)) == 4
    assert len({each for _, each in found}) == 4


def test_a_failing_function_makes_a_dead_letter_of_the_whole_row(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"b": "one two"}, {"b": "three bad four"}, {"b": "bad"}, {"b": None})
    job(
        cluster,
        f"{CREATED} {TEXTS.format(LETTERS)} {SINK}"
        "INSERT INTO sink SELECT word, CAST(length AS STRING) FROM t, LATERAL TABLE(words(b));"
        "INSERT INTO sink SELECT clean(b), 'clean' FROM t;",
    )
    assert {tuple(json.loads(each.body).values()) for each in stored(cluster, "sink")} == {
        (None, "clean"), ("one two", "clean"), ("one", "3"), ("three bad four", "clean"), ("two", "3"),
    }  # fmt: skip
    reasons = [" ".join(each.properties.values()) for each in stored(cluster, "letters")]
    assert len(reasons) == 2, "a message that is bad for two statements is one letter"
    assert all("function words(b): ValueError: no such word" in each for each in reasons)


def test_ids_stay_where_rows_that_became_several_are_grouped_and_joined(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "tags": ["x", "y", "x"]}, {"a": 2, "tags": ["z", "x"]})
    put(cluster, "u", {"tag": "x", "name": "X"}, {"tag": "z", "name": "Z"})
    expanded = "SELECT a, tag FROM t, UNNEST(tags) AS u (tag)"
    for _ in range(2):
        job(
            cluster,
            f"{TEXTS.format('')} CREATE TABLE u (tag STRING, name STRING) WITH ('topic' = 'u'); {SINK}"
            "SET 'table.exec.state.ttl' = '1 d'; INSERT INTO sink SELECT CAST(v.a AS STRING), u.name FROM "
            f"({expanded}) AS v JOIN u ON v.tag = u.tag; INSERT INTO sink SELECT tag, CAST(a AS STRING) FROM "
            f"({expanded}) AS v WHERE a > 1;",
        )
    found = [(json.loads(each.body)["a"], each.get_property("UNIQ_KEY")) for each in stored(cluster, "sink")]
    assert sorted(value for value, _ in found) == sorted(["1", "1", "2", "2", "x", "z"] * 2)
    assert len(set(found)) == 6


def test_a_bad_row_is_in_no_group(cluster: InMemoryCluster) -> None:
    """One of its words is in a group already when another one fails: it must not count."""
    put(cluster, "t", {"b": "1 2"}, {"b": "1 3 x"}, {"b": "2"})
    job(
        cluster,
        f"{CREATED} {TEXTS.format(LETTERS)} {SINK} INSERT INTO sink SELECT CAST(n AS STRING), CAST(COUNT(*) AS STRING) "
        "FROM (SELECT CAST(word AS INT) AS n FROM t, LATERAL TABLE(words(b))) AS w GROUP BY n;",
    )
    assert rows(cluster) == [("1", "1"), ("2", "2")]
    assert len(stored(cluster, "letters")) == 1


def test_aggregates_in_windows(cluster: InMemoryCluster) -> None:
    times = [f"2024-01-01 00:00:{second:02}" for second in (1, 30, 59)] + ["2024-01-01 00:01:05"]
    for number, at in enumerate(times):
        put(cluster, "t", {"a": number, "b": "ab abc " + "x" * number, "ts": at})
    job(
        cluster,
        f"{CREATED} CREATE TABLE t (a INT, b STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = 't');"
        "CREATE TABLE sink (a DOUBLE, b STRING, n BIGINT, seen ARRAY<BIGINT>, since TIMESTAMP(3)) "
        "WITH ('topic' = 'sink'); INSERT INTO sink "
        "SELECT mean(a, 1.0), longest(word) FILTER (WHERE length < 4), rows(), numbers(a), window_start "
        "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)), LATERAL TABLE(words(b)) "
        "GROUP BY window_start, window_end HAVING rows() > 2;",
    )
    first, second = rows(cluster)
    assert first == (pytest.approx(9 / 8), "abc", 8, [0, 0, 1, 2], "2024-01-01 00:00:00")
    assert second == (3.0, "xxx", 3, [0, 3], "2024-01-01 00:01:00")


def test_a_failing_aggregate_fails_the_job_with_the_place(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"b": "fine"}, {"b": "bad"})
    with pytest.raises(Exception, match=r"t/broker-a/1, offset 0: function Longest, an aggregate, has failed in "
                                        r"accumulate: ValueError: no such word \(INSERT INTO sink, line"):  # fmt: skip
        job(cluster, f"{CREATED} {TEXTS.format('')} {SINK} INSERT INTO sink SELECT longest(b), 'x' FROM t;")


@pytest.mark.parametrize(
    ("option", "bad", "reason"),
    [
        ("dead-letter", "bad", "ValueError: no such word"),
        ("dead-letter", "cancel", "CancelledError: too late"),
        ("skip", "bad", ""),
        ("null", "leaving", ""),
    ],
)
def test_a_row_with_which_an_aggregate_fails_is_bad(
    cluster: InMemoryCluster, option: str, bad: str, reason: str
) -> None:
    put(cluster, "t", {"a": 1, "b": "fine"}, {"a": 1, "b": bad}, {"a": 2, "b": bad}, {"a": 1, "b": None})
    letters = LETTERS if option == "dead-letter" else f", 'on-error' = '{option}'"
    job(
        cluster,
        f"{CREATED} {TEXTS.format(letters)} {SINK}"
        "INSERT INTO sink SELECT longest(b), CAST(COUNT(*) AS STRING) || '/' || CAST(SUM(a) AS STRING) FROM t "
        "GROUP BY a;"
        "INSERT INTO sink SELECT longest(b) FILTER (WHERE b = 'fine'), CAST(COUNT(*) AS STRING) FROM t;",
    )
    assert rows(cluster) == [("fine", "2/2"), ("fine", "4")], "nothing of the row is in a group, not even the group"
    found = stored(cluster, "letters")
    if option == "dead-letter":
        assert sorted(json.loads(each.body)["a"] for each in found) == [1, 2]
        for each in found:
            text = " ".join(each.properties.values())
            assert f"function Longest, an aggregate, has failed in accumulate: {reason}" in text
            assert "(INSERT INTO sink, line 1)" in text


@pytest.mark.parametrize("bad", ["longest bad", "longest exit"])
def test_a_row_that_became_several_fails_as_a_whole_in_an_aggregate(cluster: InMemoryCluster, bad: str) -> None:
    put(cluster, "t", {"b": "one"}, {"b": bad}, {"b": "three"})
    job(
        cluster,
        f"{CREATED} {TEXTS.format(LETTERS)} {SINK} INSERT INTO sink "
        "SELECT longest(word), CAST(COUNT(*) AS STRING) FROM t, LATERAL TABLE(words(b));",
    )
    assert rows(cluster) == [("three", "2")]
    assert [json.loads(each.body)["b"] for each in stored(cluster, "letters")] == [bad]


def test_a_row_of_a_join_with_which_an_aggregate_fails_is_bad(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "b": "fine"}, {"a": 2, "b": "bad"})
    put(cluster, "u", {"tag": "1", "name": "X"}, {"tag": "2", "name": "Y"})
    job(
        cluster,
        f"{CREATED} {TEXTS.format(LETTERS)} CREATE TABLE u (tag STRING, name STRING) "
        f"WITH ('topic' = 'u'{LETTERS}); {SINK}"
        "INSERT INTO sink SELECT longest(t.b), MAX(u.name) FROM t JOIN u ON CAST(t.a AS STRING) = u.tag;",
    )
    assert rows(cluster) == [("fine", "X")]
    (letter,) = stored(cluster, "letters")
    assert "bad" in letter.body.decode()


@pytest.mark.parametrize(
    ("word", "reason"),
    [("merge", "merge: ValueError: these do not merge"), ("value", "get_value: ValueError: there is no value")],
)
def test_what_belongs_to_no_row_fails_the_job(cluster: InMemoryCluster, word: str, reason: str) -> None:
    put(cluster, "t", {"b": "fine"}, {"b": word})
    with pytest.raises(Exception, match=rf"function Fragile, an aggregate, has failed in {reason} "
                                        r"\(INSERT INTO sink, line 2\)"):  # fmt: skip
        job(
            cluster,
            f"CREATE FUNCTION Fragile AS '{MODULE}.Fragile' LANGUAGE PYTHON; {TEXTS.format(LETTERS)} {SINK}\n"
            "INSERT INTO sink SELECT fragile(b), 'x' FROM t;",
        )


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("half", "get_value: '\\ud800' has half of a surrogate pair, which is not UTF-8"),
        ("half a word", "accumulate: UnicodeEncodeError: "),
    ],
)
def test_text_that_is_none_is_a_bad_row(cluster: InMemoryCluster, word: str, reason: str) -> None:
    put(cluster, "t", {"a": 1, "b": "fine"}, {"a": 2, "b": word})
    job(
        cluster,
        f"CREATE FUNCTION Fragile AS '{MODULE}.Fragile' LANGUAGE PYTHON; {TEXTS.format(LETTERS)} {SINK}\n"
        "INSERT INTO sink SELECT fragile(b), CAST(a AS STRING) FROM t GROUP BY a;",
    )
    assert rows(cluster) == [("fine", "1")]
    (letter,) = stored(cluster, "letters")
    assert f"function Fragile, an aggregate, has failed in {reason}" in str(letter.get_property("RMQIO_ERROR_REASON"))


def test_constants_are_expanded(cluster: InMemoryCluster) -> None:
    job(
        cluster,
        f"{CREATED} {SINK} INSERT INTO sink SELECT word, x FROM UNNEST(ARRAY['a b', 'c']) AS x, TABLE(words(x));",
    )
    assert rows(cluster) == [("a", "a b"), ("b", "a b"), ("c", "c")]


def test_rows_that_became_several_are_joined(cluster: InMemoryCluster) -> None:
    put(cluster, "t", {"a": 1, "tags": ["x", "y"]}, {"a": 2, "tags": ["x"]})
    put(cluster, "u", {"tag": "x", "name": "X"})
    job(
        cluster,
        f"{TEXTS.format('')} CREATE TABLE u (tag STRING, name STRING) WITH ('topic' = 'u'); {SINK}"
        "SET 'table.exec.state.ttl' = '1 d'; INSERT INTO sink SELECT CAST(v.a AS STRING), u.name FROM "
        "(SELECT a, tag FROM t, UNNEST(tags) AS x (tag)) AS v JOIN u ON v.tag = u.tag;",
    )
    assert rows(cluster) == [("1", "X"), ("2", "X")]


# ---- aggregates beside plain Python ---------------------------------------------------------------------------------

QUERY = "SELECT longest(b), mean(d, n), numbers(a), rows(), longest(DISTINCT b), rows() FILTER (WHERE a > 0) FROM t"
ROWS = st.lists(
    st.tuples(st.none() | st.integers(-3, 3), st.none() | st.text("ab", max_size=3), st.integers(0, 4),
              st.none() | st.integers(-9, 9).map(float)),
    max_size=6,
)  # fmt: skip


@settings(deadline=None)
@given(batches=st.lists(ROWS, min_size=1, max_size=4))
def test_batches_do_not_matter(batches: list[list[Any]]) -> None:
    calc = plan(QUERY, "Longest", "Mean", "Numbers", "Rows")
    assert isinstance(calc, Calc)
    aggregate = calc.input
    assert isinstance(aggregate, Aggregate)
    assert isinstance(aggregate.input, Calc)
    names = [each.name for each in aggregate.input.input.fields]
    fields = aggregate.input.fields
    run = compiled(
        Fragment(
            FromRows(aggregate.input.input.fields),
            (Step(None, aggregate.input.projections),),
            ToGroups((), None, aggregate.calls, fields),
        )
    )
    merger = Merger((each, None if each.argument is None else fields[each.argument].type) for each in aggregate.calls)
    decode = msgspec.msgpack.Decoder(merger.hint).decode
    merged: Any = None
    for batch in batches:
        given_rows = [tuple(dict(zip(("a", "b", "n", "d"), row, strict=True))[name] for name in names) for row in batch]
        for _, accumulators in run(given_rows).values:
            found = decode(pack(accumulators))
            merged = found if merged is None else decode(pack(merger.merge(merged, found)))
    every = [row for batch in batches for row in batch]
    if merged is None:
        assert not every
        return
    longest = max((b for _, b, _, _ in every if b is not None), key=lambda each: (len(each), each), default=None)
    weights = [(d, n) for _, _, n, d in every if d is not None]
    total = sum(n for _, n in weights)
    numbers = [a for a, *_ in every]
    assert merger.finish(merged) == [
        longest,
        pytest.approx(sum(d * n for d, n in weights) / total) if total else None,
        [numbers.count(None), *sorted({each for each in numbers if each is not None})],
        len(every),
        longest,
        sum(each is not None and each > 0 for each in numbers),
    ]
