"""The signature of a job: what changes it, and what it says then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.explain.signature import ADDED_LATER, VERSION, Comparison, Signature, changes, compared, signature_of
from rmqio.sql.runtime.runners import check_signature
from rmqio.sql.scripts.script import Script

TABLES = """
CREATE TABLE o (id BIGINT, customer STRING, amount BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('topic' = 'o');
CREATE TABLE c (id BIGINT, name STRING) WITH ('topic' = 'c');
CREATE TABLE x (a BIGINT, b STRING) WITH ('topic' = 'x');
SET 'table.exec.state.ttl' = '1 h';
"""
WINDOW = "INSERT INTO x SELECT SUM(amount), customer FROM o GROUP BY customer, TUMBLE(ts, INTERVAL '1' MINUTE)"
INSTANTS = "CREATE TABLE i (id BIGINT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts) WITH ('topic' = 'i')"
TIMES = "CREATE TABLE u (id BIGINT, window_time TIMESTAMP(3)) WITH ('topic' = 'u')"
IN_BERLIN = "SET 'table.local-time-zone' = 'Europe/Berlin'"
INSTANTS_WINDOW = "INSERT INTO x(a) SELECT SUM(id) FROM i GROUP BY TUMBLE(ts, INTERVAL '1' DAY)"
INSTANTS_ROWS = "INSERT INTO x(a) SELECT id FROM TABLE(TUMBLE(TABLE i, DESCRIPTOR(ts), INTERVAL '1' DAY))"
JOIN = "INSERT INTO x SELECT o.id, c.name FROM o JOIN c ON o.id = c.id"


_CUT = "CAST(CAST(o.customer AS BYTES) AS %s)"


def _keyed(kind: str) -> str:
    return f"INSERT INTO x(a) SELECT SUM(amount) FROM o GROUP BY {_CUT % kind}, TUMBLE(ts, INTERVAL '1' DAY)"


def script_of(*statements: str) -> Script:
    script = Script()
    script.run(TABLES + ";".join(statements) + ";")
    return script


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (WINDOW, f"-- a comment\n{WINDOW.replace('o GROUP', 'o AS q GROUP')}"),
        (WINDOW, WINDOW.replace("SUM(amount), customer", "SUM(amount) + 1 AS total, UPPER(customer) AS who")),
        (WINDOW, WINDOW.replace(" GROUP", " WHERE amount > 5 GROUP")),
        (
            WINDOW,
            "INSERT INTO x SELECT SUM(n), who FROM (SELECT amount AS n, customer AS who, ts FROM o) AS v "
            "GROUP BY who, TUMBLE(ts, INTERVAL '60' SECOND)",
        ),
        (JOIN, JOIN.replace("o.id, c.name", "o.id AS n, UPPER(c.name)")),
        (JOIN, f"{JOIN} WHERE c.name <> 'x'"),
    ],
)
def test_what_changes_no_state(before: str, now: str) -> None:
    assert changes(signature_of(script_of(before).sinks), signature_of(script_of(now).sinks)) == []


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (
            [WINDOW],
            [WINDOW.replace("'1' MINUTE", "'2' MINUTE")],
            ["INSERT INTO x: group: window was tumble of 1 min by o.ts, and is tumble of 2 min by o.ts"],
        ),
        (
            [WINDOW],
            [WINDOW.replace("SUM(amount)", "MAX(amount)")],
            ["INSERT INTO x: group: aggregates was SUM(o.amount), and is MAX(o.amount)"],
        ),
        (
            [WINDOW],
            [WINDOW.replace("customer", "UPPER(customer)")],
            ["INSERT INTO x: group: keys was o.customer, and is UPPER(o.customer)"],
        ),
        ([WINDOW], [WINDOW, JOIN], ["INSERT INTO x is new"]),
        ([WINDOW, JOIN], [WINDOW], ["INSERT INTO x is missing"]),
        (
            [JOIN],
            [JOIN.replace("o.id, c.name", "o.amount, c.name")],
            ["INSERT INTO x: join: left columns was o.id BIGINT, and is o.id BIGINT, o.amount BIGINT"],
        ),
        (
            [JOIN],
            [f"SET 'table.exec.state.ttl' = '2 h'; {JOIN}"],
            ["INSERT INTO x: join: time to live was 1 h, and is 2 h"],
        ),
        (
            [JOIN],
            ["INSERT INTO x SELECT id, name FROM c"],
            ["INSERT INTO x: it was join of read of c of read of o, and is read of c"],
        ),
        (
            [INSTANTS, INSTANTS_WINDOW],
            [INSTANTS, IN_BERLIN, INSTANTS_WINDOW],
            ["INSERT INTO x: group: window was tumble of 1 d by i.ts, and is tumble of 1 d by i.ts in Europe/Berlin"],
        ),
        (
            [INSTANTS, INSTANTS_ROWS],
            [INSTANTS, IN_BERLIN, INSTANTS_ROWS],
            ["INSERT INTO x: windowed: zone was nothing, and is Europe/Berlin"],
        ),
        ([WINDOW], [IN_BERLIN, WINDOW], []),
        *(
            ([_keyed(one)], [_keyed(other)], [f"INSERT INTO x: group: keys was {_CUT % one}, and is {_CUT % other}"])
            for one, other in (("CHAR(5)", "VARCHAR(5)"), ("BINARY(5)", "BINARY(6)"), ("VARBINARY(5)", "BINARY(5)"))
        ),
        (
            [TIMES, "INSERT INTO x SELECT o.id, o.customer FROM o JOIN u ON o.id = u.id WHERE o.ts < u.window_time"],
            [
                TIMES.replace("TIMESTAMP", "TIMESTAMP_LTZ"),
                "INSERT INTO x SELECT o.id, o.customer FROM o JOIN u ON o.id = u.id "
                "WHERE o.ts < CAST(u.window_time AS TIMESTAMP(3))",
            ],
            [
                "INSERT INTO x: join: right columns was u.id BIGINT, u.window_time TIMESTAMP(3), "
                "and is u.id BIGINT, u.window_time TIMESTAMP_LTZ(3)"
            ],
        ),
    ],
)
def test_what_does(before: list[str], now: list[str], said: list[str]) -> None:
    kept = json.loads(json.dumps(signature_of(script_of(*before).sinks)))
    assert changes(kept, signature_of(script_of(*now).sinks)) == said


TTL = "SET 'table.exec.state.ttl' = '1 h'"


@pytest.mark.parametrize(
    ("query", "step"),
    [
        ("SELECT COUNT(*) FROM o GROUP BY customer", "group"),
        ("SELECT SUM(id) OVER (PARTITION BY customer ORDER BY ts) FROM o", "over"),
        (
            "SELECT n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC) AS rn FROM "
            "(SELECT customer, COUNT(*) AS n FROM o GROUP BY customer)) WHERE rn <= 3",
            "group",
        ),
    ],
)
def test_state_without_the_time_of_its_last_row_is_refused(query: str, step: str) -> None:
    """So is that of an earlier version, which did not obey the setting, and had no such key."""
    statement = f"INSERT INTO x(a) {query}"
    forever, kept = signature("SET 'table.exec.state.ttl' = '0 s'", statement), signature(TTL, statement)
    said = f"INSERT INTO x: {step}: time to live was nothing, and is 1 h"
    assert said in changes(forever, kept)
    for each in kept[0]["steps"]:
        if each["step"] == step:
            del each["time to live"]
    assert changes(kept, signature(TTL, statement)) == [said]
    ends = "CREATE TABLE e (customer STRING) WITH ('topic' = 'e', 'endTime' = '2024-01-01 00:00:00Z')"
    of_end = "INSERT INTO x(a) SELECT COUNT(*) FROM e GROUP BY customer"
    assert signature(ends, of_end) == signature("SET 'table.exec.state.ttl' = '0 s'", ends, of_end)


DAYS = (
    "(SELECT id, window_start, window_end, window_time FROM TABLE(TUMBLE(TABLE i, DESCRIPTOR(ts), INTERVAL '1' DAY)))"
)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT EXTRACT(HOUR FROM window_time) FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start "
        f"ORDER BY id) AS n FROM {DAYS}) WHERE n <= 3",
        f"SELECT l.id FROM {DAYS} AS l JOIN {DAYS} AS r ON l.id = r.id AND l.window_start = r.window_start "
        "AND l.window_end = r.window_end WHERE l.window_time = r.window_time",
        f"SELECT EXTRACT(HOUR FROM MAX(window_time)) FROM {DAYS} GROUP BY id",
        f"SELECT COUNT(*) FROM {DAYS} GROUP BY id, window_time",
        f"SELECT COUNT(*) OVER (PARTITION BY id ORDER BY window_time) FROM {DAYS}",
    ],
    ids=["top-n", "join", "aggregate", "key", "over"],
)
def test_the_time_of_a_window_that_was_a_timestamp_at_first_has_the_same_values_in_utc(query: str) -> None:
    statements = (INSTANTS, f"INSERT INTO x(a) {query}")
    text = json.dumps(signature(*statements))
    kept = json.loads(text.replace("TIMESTAMP_LTZ(3)", "TIMESTAMP(3)"))
    assert kept != json.loads(text)
    assert changes(kept, signature(*statements)) == []
    assert changes(kept, signature(IN_BERLIN, *statements)) == [
        "INSERT INTO x: windowed: zone was nothing, and is Europe/Berlin"
    ]


COPY = "INSERT INTO x SELECT id, customer FROM o"
TO_Y = "CREATE TABLE y (a BIGINT) WITH ('topic' = 'y')"
INTO_Y = "INSERT INTO y SELECT COUNT(*) FROM o GROUP BY customer, TUMBLE(ts, INTERVAL '1' MINUTE)"


def signature(*statements: str) -> Signature:
    return json.loads(json.dumps(signature_of(script_of(*statements).sinks)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("before", "now", "refused", "order"),
    [
        ([WINDOW, INTO_Y], [INTO_Y, WINDOW], [], [1, 0]),
        ([WINDOW, JOIN], [JOIN, WINDOW], [], [1, 0]),  # into one table
        ([WINDOW, COPY], [COPY, WINDOW.replace(" GROUP", " WHERE id > 1 GROUP")], [], [1, 0]),
        ([WINDOW], [INTO_Y, WINDOW], ["INSERT INTO y is new"], [1]),
        ([INTO_Y, WINDOW], [WINDOW], ["INSERT INTO y is missing"], [0]),
        (
            [WINDOW, INTO_Y],
            [INTO_Y.replace("COUNT(*)", "SUM(id)"), WINDOW],
            ["INSERT INTO y: group: aggregates was COUNT(*), and is SUM(o.id)"],
            [1, 0],
        ),
        (["INSERT INTO x(a) SELECT id FROM o"], ["INSERT INTO y SELECT id FROM o"],
         ["INSERT INTO x has become INSERT INTO y"], []),
    ],
)  # fmt: skip
def test_inserts_are_paired_by_table_and_plan(
    before: list[str], now: list[str], refused: list[str], order: list[int]
) -> None:
    found = compared(signature(TO_Y, *before), signature(TO_Y, *now))
    assert (found.refused, found.order) == (refused, order)


TYPED = """
CREATE TABLE t ({key}, {value}, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND)
WITH ('topic' = 't', 'format' = '{format}');
CREATE TABLE s (k STRING, v STRING) WITH ('topic' = 's');
INSERT INTO s SELECT CAST(k AS STRING), CAST({call} AS STRING) FROM t GROUP BY k, TUMBLE(ts, INTERVAL '1' MINUTE);
INSERT INTO s SELECT CAST(t.v AS STRING), x.b FROM t JOIN x ON t.k = x.b;
"""
KINDS = {"key": "k STRING", "value": "v INT", "delay": "5", "call": "SUM(v)", "format": "json"}


def typed(**kinds: str) -> Signature:
    return signature(TYPED.format(**{**KINDS, **kinds}))


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"key": "k VARCHAR(5)"}, {"key": "k INT"}, ["types of the keys was VARCHAR(5), and is INT"]),
        ({"value": "v DECIMAL(10, 2)"}, {"value": "v DECIMAL(12, 4)"},
         ["types of the arguments was DECIMAL(10, 2), and is DECIMAL(12, 4)",
          "types of the results was DECIMAL(38, 2), and is DECIMAL(38, 4)",
          "left columns was t.k STRING, t.v DECIMAL(10, 2), and is t.k STRING, t.v DECIMAL(12, 4)"]),
        ({"value": "v BIGINT"}, {"value": "v INT"},
         ["types of the arguments was BIGINT, and is INT", "types of the results was BIGINT, and is INT",
          "left columns was t.k STRING, t.v BIGINT, and is t.k STRING, t.v INT"]),
        ({"value": "v BIGINT", "call": "MAX(v)"}, {"value": "v STRING", "call": "MAX(v)"},
         ["types of the arguments was BIGINT, and is STRING", "types of the results was BIGINT, and is STRING",
          "left columns was t.k STRING, t.v BIGINT, and is t.k STRING, t.v STRING"]),
    ],
)  # fmt: skip
def test_a_type_that_does_not_fit_the_state_is_refused(
    before: dict[str, str], now: dict[str, str], said: list[str]
) -> None:
    if "key" in before:  # the join needs a key that is text
        text = TYPED.replace("t.k = x.b", "CAST(t.k AS STRING) = x.b")
        refused = changes(signature(text.format(**{**KINDS, **before})), signature(text.format(**{**KINDS, **now})))
        assert f"INSERT INTO s: group: {said[0]}" in refused
        return
    refused = changes(typed(**before), typed(**now))
    assert refused == [f"INSERT INTO s: {'join' if 'columns' in each else 'group'}: {each}" for each in said]


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({}, {"format": "csv"}, []),
        ({}, {"delay": "50"}, ["read of t: watermark delay was 5 s, and is 50 s (it goes on)"]),
        ({"value": "v INT"}, {"value": "v BIGINT"},
         ["group: types of the arguments was INT, and is BIGINT (it goes on)",
          "group: types of the results was INT, and is BIGINT (it goes on)",
          "join: left columns was t.k STRING, t.v INT, and is t.k STRING, t.v BIGINT (it goes on)"]),
        ({"value": "v DECIMAL(10, 2)", "call": "MAX(v)"}, {"value": "v DECIMAL(12, 2)", "call": "MAX(v)"}, None),
        ({"key": "k VARCHAR(5)"}, {"key": "k STRING"}, None),
    ],
)  # fmt: skip
def test_a_wider_type_and_another_delay_go_on(
    before: dict[str, str], now: dict[str, str], said: list[str] | None
) -> None:
    found = compared(typed(**before), typed(**now))
    assert found.refused == []
    assert found.accepted if said is None else found.accepted == [f"INSERT INTO s: {each}" for each in said]


def test_a_signature_without_types_goes_on() -> None:
    before = typed()
    for insert in before:
        insert["steps"] = [{k: v for k, v in each.items() if k not in ADDED_LATER} for each in insert["steps"]]
    assert compared(before, typed(value="v INT", delay="9")) == Comparison([], [], [0, 1])


def test_ids_that_were_numbers_of_looked_up_rows_do_not_go_on() -> None:
    names = (
        "CREATE TABLE n (id BIGINT, name STRING{}) WITH ('connector' = 'filesystem', 'path' = 'n', 'format' = 'csv')"
    )
    once = (
        "CREATE TABLE y (a BIGINT, b STRING) WITH ('topic' = 'y', 'sink.delivery-guarantee' = 'exactly-once', "
        "'producerGroup' = 'g')"
    )
    query = "SELECT o.id, n.name FROM o JOIN n FOR SYSTEM_TIME AS OF PROCTIME() ON o.id = n.id"

    def signature(into: str, key: str = "") -> Signature:
        return signature_of(script_of(once, names.format(key), f"INSERT INTO {into} {query}").sinks)

    said = "INSERT INTO y: it was read of o, and is rows known by what was looked up of read of o"
    now = signature("y")
    before = [{"into": "y", "steps": now[0]["steps"][:1]}]
    assert changes(before, now) == [said]
    assert changes(before, signature("y", ", PRIMARY KEY (id) NOT ENFORCED")) == []
    assert [each["step"] for each in signature("x")[0]["steps"]] == ["read of o"]


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("SELECT o.id, f.name FROM o JOIN f ON o.id = f.id", ["right"]),
        ("SELECT f.id, o.customer FROM f JOIN o ON o.id = f.id", ["left"]),
        ("SELECT id, name FROM f WHERE id IN (SELECT id FROM o)", ["left"]),
        ("SELECT id, customer FROM o WHERE id IN (SELECT id FROM f)", None),
        ("SELECT o.id, f.name FROM o CROSS JOIN f", None),
        ("SELECT e.id, f.name FROM f AS e JOIN f ON e.id = f.id", None),
        (JOIN.removeprefix("INSERT INTO x "), None),
    ],
)
def test_rows_that_were_forgotten_under_an_earlier_version_are_missing(query: str, kept: list[str] | None) -> None:
    file = "CREATE TABLE f (id BIGINT, name STRING) WITH ('connector' = 'filesystem', 'path' = 'f', 'format' = 'csv')"
    now = signature_of(script_of(file, f"INSERT INTO x {query}").sinks)
    step = now[0]["steps"][-1]
    assert step.get("kept forever") == kept
    before = [{**now[0], "steps": [*now[0]["steps"][:-1], {k: v for k, v in step.items() if k != "kept forever"}]}]
    said = [f"INSERT INTO x: {step['step']}: kept forever was nothing, and is {', '.join(kept)}"] if kept else []
    assert changes(before, now) == said


def test_the_order_of_the_state_is_kept(tmp_path: Path) -> None:
    """Labels are numbered in this order, and Spark finds state by its label."""
    folder = str(tmp_path)
    kept = script_of(TO_Y, WINDOW, INTO_Y).sinks
    assert check_signature(folder, kept) == kept
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    told: list[str] = []
    assert check_signature(folder, script_of(TO_Y, INTO_Y, WINDOW).sinks, told.append) == kept
    later = TABLES.split("CREATE TABLE c")[0].replace("AS ts)", "AS ts - INTERVAL '9' SECOND)")
    wider = script_of(TO_Y, "DROP TABLE o", later, INTO_Y, WINDOW)
    check_signature(folder, wider.sinks, told.append)
    assert told[0] == (
        "rmqio sql: the state fits: INSERT INTO x: read of o: watermark delay was 0 s, and is 9 s (it goes on)"
    )


def test_it_is_kept_with_the_checkpoint(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoint")
    check_signature(folder, script_of(WINDOW).sinks)
    check_signature(folder, script_of(JOIN).sinks)  # there is no state yet
    (tmp_path / "checkpoint" / "offsets").mkdir()
    (tmp_path / "checkpoint" / "offsets" / "0").touch()
    check_signature(folder, script_of(f"/* again */ {JOIN}").sinks)
    with pytest.raises(SqlError, match=r"holds the state of another query: INSERT INTO x: it was join"):
        check_signature(folder, script_of(WINDOW).sinks)
    check_signature("nowhere://checkpoint", script_of(WINDOW).sinks)
    file = tmp_path / "checkpoint" / "rmqio-sql.json"
    file.write_text(file.read_text().replace(f'"version": {VERSION}', f'"version": {VERSION - 1}'))
    with pytest.raises(SqlError, match="holds the state of another version of rmqio, in which some functions have"):
        check_signature(folder, script_of(JOIN).sinks)
