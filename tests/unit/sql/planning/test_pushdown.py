"""Filters that WHERE implies: a weaker condition for each random one, and what is left here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio import StartFrom, StopAt
from rmqio.sql.compile.description import Fragment, FromTable, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.planning.pushdown import MARGIN_MS, Pushed, pushed_of, uses_of
from rmqio.sql.runtime.scans import bounds
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryCluster
from tests.helpers.sql_conditions import CONDITIONS, TABLE, record_with
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.job_support import job, rows

SINK = "CREATE TABLE sink (a INT, b STRING) WITH ('topic' = 'sink');"


def script_of(*conditions: str, options: str = "'filter.push-down' = 'sql92'") -> Script:
    script = Script()
    script.run(
        TABLE.format(options=options) + SINK + "".join(f"INSERT INTO sink SELECT 1, 'x' FROM t WHERE {each};"
        for each in conditions)
    )  # fmt: skip
    return script


def pushed(*conditions: str, options: str = "'filter.push-down' = 'sql92'") -> Pushed:
    script = script_of(*conditions, options=options)
    return pushed_of(script.catalog.tables["t"], uses_of(script.sinks))


TAGS = "'filter.push-down' = 'tags'"


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        (["tags = 'a' OR tags IN ('b', 'c')"], "a || b || c"),
        (["'a' = tags AND a > 1"], "a"),
        (["tags IN ('a', 'b', NULL) AND tags IN ('b', 'c')"], "b"),
        (["tags IS NOT DISTINCT FROM 'a'"], "a"),
        (["(tags = 'a') IS TRUE"], "a"),
        (["tags = 'a'", "tags = 'b' AND a = 1"], "a || b"),
        (["tags = 'a'", "a = 1"], None),
        (["tags = 'a' OR a = 1"], None),
        (["tags <> 'a'"], None),
        (["NOT (tags <> 'a')"], None),
        (["tags = 'a' AND tags = 'b'"], None),  # no message at all, which no subscription says
        (["tags = '*'"], None),
        (["tags = 'a||b'"], None),
        (["tags = ' a'"], None),
        (["tags = ''"], None),
        (["UPPER(tags) = 'A'"], None),
        (["tags IN (" + ", ".join(f"'t{n}'" for n in range(101)) + ")"], None),
    ],
)
def test_tags(conditions: list[str], wanted: str | None) -> None:
    assert pushed(*conditions, options=TAGS).expression == wanted


def test_tags_and_the_option_of_the_table() -> None:
    own = f"{TAGS}, 'tag' = 'a || b'"
    assert pushed("tags = 'b' OR tags = 'c'", options=own).expression == "b"
    assert pushed("tags = 'c'", options=own).expression == "a || b", "an empty subscription would be all messages"
    assert pushed("tags = 'c'", options=f"{TAGS}, 'sql' = 'x = 1'").expression is None


def test_what_is_not_left_to_the_broker() -> None:
    assert pushed("tags = 'a'", options="'filter.push-down' = 'none'") == Pushed()
    assert pushed("tags = 'a'", options="'on-error' = 'skip'").expression == "a"
    timed = Script()
    timed.run(
        "CREATE TABLE t (ts TIMESTAMP(3), tags STRING METADATA, WATERMARK FOR ts AS ts) WITH ('topic' = 't');"
        + SINK + "INSERT INTO sink SELECT 1, 'x' FROM t WHERE tags = 'a';"
    )  # fmt: skip
    assert pushed_of(timed.catalog.tables["t"], uses_of(timed.sinks)) == Pushed(), "the watermark would follow fewer"


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        (["p['k'] = 'v'"], "k = 'v'"),
        (["p['k'] <> 'v' AND p['l'] IS NULL"], "k <> 'v' AND l IS NULL"),
        (["p['k'] IN ('v', 'w')", "p['l'] NOT IN ('v', 'w')"], "k IN ('v', 'w') OR l NOT IN ('v', 'w')"),
        (["p['k'] = 'v' AND (tags = 'a' OR p['l'] IS NOT NULL)"], "k = 'v' AND (TAGS = 'a' OR l IS NOT NULL)"),
        (["p['k'] > 'v'"], "k IS NOT NULL"),
        (["p['k'] BETWEEN 'a' AND 'v'"], "k IS NOT NULL"),
        (["p['k'] LIKE 'v%'"], "k IS NOT NULL"),
        (["CAST(p['k'] AS INT) > 5"], "k IS NOT NULL"),
        (["TRY_CAST(p['k'] AS DOUBLE) > 5.5E0"], "k >= 5.5"),
        (["TRY_CAST(p['k'] AS INT) BETWEEN 3 AND 5"], "k >= 2.0 AND k <= 6.0"),
        (["TRY_CAST(p['k'] AS INT) BETWEEN 1 AND -1"], "k >= -0.000001 AND k <= 0.000001"),
        (["7 > TRY_CAST(p['k'] AS DECIMAL(10, 2))"], "k <= 9.00"),
        (["TRY_CAST(p['k'] AS BIGINT) > 1000000000000000000"], "k IS NOT NULL"),
        # A broker drops a message whose k is no number, although another part of OR is true
        (["TRY_CAST(p['k'] AS INT) = 5", "p['k'] IS NOT NULL"], "k IS NOT NULL"),
        (["TRY_CAST(p['k'] AS INT) = 5 OR p['l'] = 'v'"], "k IS NOT NULL OR l = 'v'"),
        (["TRY_CAST(p['k'] AS INT) > 5 OR TRY_CAST(p['l'] AS INT) > 5"], "k IS NOT NULL OR l IS NOT NULL"),
        (["TRY_CAST(p['k'] AS DOUBLE) < 1.5E0 OR TRY_CAST(p['k'] AS DOUBLE) > 5.5E0"], "k <= 1.5 OR k >= 5.5"),
        (["p['l'] = 'v' AND (TRY_CAST(p['k'] AS INT) > 5 OR p['m'] = 'v')"], "l = 'v' AND (k IS NOT NULL OR m = 'v')"),
        (["p['k'] = 'it''s'"], "k IS NOT NULL"),
        (["p['not-a-name'] = 'v'"], None),
        (["p['and'] = 'v'"], None),
        (["p['KEYS'] = 'v'"], "KEYS = 'v'"),
        (["p['k'] = 'v' OR a = 1"], None),
        (["p['k'] = p['l']"], "k IS NOT NULL"),
    ],
)
def test_properties(conditions: list[str], wanted: str | None) -> None:
    found = pushed(*conditions).selector
    assert (None if found is None else found.text) == wanted
    assert pushed(*conditions, options=TAGS).selector is None


YEAR = 1_704_067_200_000


@pytest.mark.parametrize(
    ("conditions", "start", "stop"),
    [
        (["st >= TIMESTAMP '2024-01-01 00:00:00'"], YEAR, None),
        (["st BETWEEN '2024-01-01T00:00:00Z' AND TIMESTAMP '2024-01-01 00:00:01'"], YEAR, YEAR + 1001),
        (["TIMESTAMP '2024-01-01 00:00:00' > st"], None, YEAR + 1),
        (["st > TIMESTAMP '2024-01-01 00:00:01'", "st > TIMESTAMP '2024-01-01 00:00:00'"], YEAR, None),
        (["st > TIMESTAMP '2024-01-01 00:00:00'", "a = 1"], None, None),
        (["st = TIMESTAMP '2024-01-01 00:00:00' OR a = 1"], None, None),
        (["st <> TIMESTAMP '2024-01-01 00:00:00'"], None, None),
        (["st + INTERVAL '1' DAY > TIMESTAMP '2024-01-01 00:00:00'"], None, None),
    ],
)
def test_store_times(conditions: list[str], start: int | None, stop: int | None) -> None:
    found = pushed(*conditions, options=TAGS)
    assert found.start_ms == (None if start is None else start - MARGIN_MS)
    assert found.stop_ms == (None if stop is None else stop + MARGIN_MS)


def test_where_a_read_begins_and_ends() -> None:
    options = script_of("a = 1").catalog.tables["t"].options
    both = Pushed(start_ms=1000, stop_ms=2000)
    early, late, group = StartFrom.earliest(), StartFrom.latest(), StartFrom.group_offsets("earliest")
    assert bounds(options, early, None, both) == (StartFrom.timestamp(1000), None), "nothing ends by its WHERE"
    assert bounds(options, early, StopAt.latest(), both) == (StartFrom.timestamp(1000), StopAt.timestamp(2000))
    assert bounds(options, StartFrom.timestamp(1500), None, both)[0] == StartFrom.timestamp(1500)
    assert bounds(options, StartFrom.timestamp(500), None, both)[0] == StartFrom.timestamp(1000)
    assert bounds(options, late, None, both)[0] == late
    assert bounds(replace(options, group="g"), group, None, both)[0] == group
    assert bounds(options, group, None, Pushed())[0] == early, "there are no offsets without a group"
    assert bounds(options, early, StopAt.timestamp(1800), both)[1] == StopAt.timestamp(1800)
    assert bounds(options, early, StopAt.timestamp(800), both) == (early, StopAt.timestamp(800))
    assert bounds(options, early, StopAt.latest(), Pushed(start_ms=5, stop_ms=3)) == (early, StopAt.latest())
    assert bounds(options, early, None, Pushed(start_ms=-1)) == (early, None)


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        for topic in ("t", "sink"):
            made.create_topic(topic, 2)
        yield made


def test_the_broker_sends_fewer_and_the_rows_are_the_same(cluster: InMemoryCluster) -> None:
    for number, tag in enumerate(["a", "b", "c", None, "Aa", "BB"] * 3):  # of Aa and BB the hashes are equal
        cluster.append("t", json.dumps({"a": number}).encode(), queue_id=number % 2, tags=tag)
    counts = {}
    for how in ("none", "tags"):
        option = f"'filter.push-down' = '{how}'"
        result = job(
            cluster,
            f"{TABLE.replace('{options}', option)} {SINK}"
            "INSERT INTO sink SELECT a, tags FROM t WHERE tags IN ('a', 'Aa') AND a > 3;"
            "INSERT INTO sink SELECT a, 'b' FROM t WHERE tags = 'b';",
        )
        counts[how] = [each for each in result.metrics().query()["counters"] if each.key.metric.name == "records_read"]
    assert [each.committed for each in counts["none"]] == [18]
    assert [each.committed for each in counts["tags"]] == [9]
    found = rows(cluster)
    assert found[::2] == found[1::2]
    assert sorted(set(found)) == [(1, "b"), (4, "Aa"), (6, "a"), (7, "b"), (10, "Aa"), (12, "a"), (13, "b"), (16, "Aa")]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    conditions=st.lists(CONDITIONS, min_size=1, max_size=2),
    tag=st.sampled_from(["a", "b", "*", None]),
    st_ms=st.integers(0, 6),
)
def test_no_row_is_lost_to_tags_and_times(conditions: list[str], tag: str | None, st_ms: int) -> None:
    record = record_with(tags=tag, store_timestamp_ms=st_ms * 1000)
    found = pushed(*conditions, options=TAGS)
    if any(is_true(script_of(each), record) for each in conditions):
        assert found.tags is None or tag in found.tags
        assert found.start_ms is None or found.start_ms + MARGIN_MS <= record.store_timestamp_ms
        assert found.stop_ms is None or record.store_timestamp_ms < found.stop_ms - MARGIN_MS


def is_true(script: Script, record: Any) -> bool:
    (use,) = uses_of(script.sinks)
    fragment = Fragment(FromTable(use.scan.table, use.scan.columns), (Step(use.condition, ()),), ToRows())
    return bool(compiled(fragment)([record]).values)
