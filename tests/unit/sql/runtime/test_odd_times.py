"""Numbers that are no times of SQL stop no statement: each is a bad row. The first and the last times are rows.

Nor do bytes of metadata that are no text.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.sql.catalog.tables import Table
from rmqio.sql.scripts.script import Script
from rmqio.sql.values import in_zone
from tests.fuzz.avro_target import long
from tests.helpers.transforms.records import record_of
from tests.unit.sql.eager import Eager, Elements, body_of

_MOST, _LEAST = (1 << 63) - 1, -1 << 63
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_DAY: Final = "TABLE({}(TABLE t, DESCRIPTOR(a), {}INTERVAL '1' DAY))"
STEP: Final = "INTERVAL '1' DAY, "
QUERIES: Final = (
    "SELECT a, COUNT(*) AS n FROM t GROUP BY a", "SELECT DISTINCT a, 1 AS n FROM t", "SELECT COUNT(a) AS n FROM t",
    "SELECT MAX(a) AS a, MIN(a) AS b, COUNT(*) AS n FROM t", "SELECT MAX(a) AS a, COUNT(*) AS n FROM t GROUP BY id",
    "SELECT a, 1 AS n FROM t ORDER BY a", "SELECT COUNT(DISTINCT a) AS n FROM t",
    "SELECT x.a, 1 AS n FROM t AS x JOIN t AS y ON x.a = y.a",
    "SELECT a, ROW_NUMBER() OVER (PARTITION BY a ORDER BY id) AS n FROM t",
)  # fmt: skip
WITH_TIME: Final = (
    f"SELECT COUNT(*) AS n FROM {_DAY.format('TUMBLE', '')} GROUP BY window_start, window_end",
    f"SELECT COUNT(*) AS n FROM {_DAY.format('CUMULATE', STEP)} GROUP BY window_start, window_end",
    "SELECT COUNT(*) AS n FROM t GROUP BY SESSION(a, INTERVAL '1' DAY)",
    "SELECT COUNT(*) OVER (PARTITION BY id ORDER BY a) AS n FROM t",
    "SELECT x.id, 1 AS n FROM t AS x JOIN t AS y ON x.id = y.id AND x.a BETWEEN y.a - INTERVAL '1' HOUR AND y.a",
    "SELECT id, 1 AS n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY a) AS r FROM t) WHERE r = 1",
)
"""Their column `n` counts the rows of `t`, too."""
BORN: Final = "TIMESTAMP_LTZ(3) METADATA FROM 'born_timestamp' VIRTUAL"


class _Born(Eager):
    """A body is the time at which its message was born."""

    def _read(self, table: Table) -> Any:
        records = [
            record_of(b'{"id": %d}' % at)._replace(queue_offset=at, born_timestamp_ms=int(body))
            for at, body in enumerate(self.bodies[table.name])
        ]
        return Elements([WindowedValue(Batch(records), MIN_TIMESTAMP, (GlobalWindow(),))])


@pytest.mark.parametrize(
    ("kind", "logical", "good", "bad"),
    [
        ("TIMESTAMP(3)", "timestamp-millis", [_FIRST_MS, _LAST_MS], [_MOST, _LEAST, _FIRST_MS - 1, _LAST_MS + 1]),
        ("TIMESTAMP_LTZ(6)", "timestamp-micros", [_FIRST_MS * 1000, _LAST_MS * 1000 + 999], [_MOST, _LEAST]),
        ("DATE", "date", [-719_162, 2_932_896], [(1 << 31) - 1, -1 << 31, -719_163, 2_932_897]),
        ("TIME(3)", "time-millis", [0, 86_399_999], [(1 << 31) - 1, -1, 86_400_000]),
        (BORN, "", [_FIRST_MS, _LAST_MS], [_MOST, _LEAST, _FIRST_MS - 1, _LAST_MS + 1]),
    ],
    ids=["TIMESTAMP", "TIMESTAMP_LTZ", "DATE", "TIME", "METADATA"],
)
def test_statements(kind: str, logical: str, good: list[int], bad: list[int]) -> None:
    numbers = [*bad, *good]
    with_time = kind.startswith("TIMESTAMP")
    options = "'topic' = 't', 'on-error' = 'dead-letter', 'dead-letter-topic' = 'letters'"
    bodies = [b"%d" % each for each in numbers]
    if logical:
        of_number = {"type": "int" if logical in ("date", "time-millis") else "long", "logicalType": logical}
        fields = [{"name": "id", "type": "int"}, {"name": "a", "type": of_number}]
        schema = json.dumps({"type": "record", "name": "R", "fields": fields})
        options += f", 'format' = 'avro', 'avro.schema' = '{schema}'"
        bodies = [long(at) + long(each) for at, each in enumerate(numbers)]
    watermark = ", WATERMARK FOR a AS a" if with_time else ""
    table = f"CREATE TABLE t (id INT, a {kind}{watermark}) WITH ({options});"
    for query in (*QUERIES, *(WITH_TIME if with_time else ())):
        script = Script()
        script.run(f"{table} EXPLAIN {query};")
        columns = ", ".join(f"{each.name} {each.type}" for each in script.explained[0].fields)
        script.run(f"CREATE TABLE sink ({columns}) WITH ('topic' = 'sink'); INSERT INTO sink {query};")
        eager = (Eager if logical else _Born)({"t": bodies}, is_endless=False)
        assert sum(json.loads(body_of(each))["n"] for each in eager.run(script.sinks[0])) == len(good), query
        assert {each.queue_offset for each in eager.letters} == set(range(len(bad))), query
        for each in eager.letters:
            assert each.reason.startswith("column a: "), query
            assert each.reason.endswith(("are not in the years 1 to 9999", "are not in a day")), query


class _WithProperties(Eager):
    """A body is the properties of its message, as they are stored."""

    def _read(self, table: Table) -> Any:
        records = [
            record_of(b'{"id": %d}' % at)._replace(queue_offset=at, raw_properties=body)
            for at, body in enumerate(self.bodies[table.name])
        ]
        return Elements([WindowedValue(Batch(records), MIN_TIMESTAMP, (GlobalWindow(),))])


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("a STRING METADATA FROM 'tags'", "TAGS"),
        ("a STRING METADATA FROM 'keys'", "KEYS"),
        ("a STRING METADATA FROM 'message_id' VIRTUAL", "UNIQ_KEY"),
        ("m MAP<STRING, STRING> METADATA FROM 'properties', a AS m['own']", "own"),
        ("m MAP<STRING, STRING> METADATA FROM 'properties', a AS COALESCE(m['own'], '')", "own"),
    ],
)
def test_metadata_that_is_not_utf_8(column: str, name: str) -> None:
    """A record keeps such bytes as halves of surrogate pairs."""
    bodies = [b"%s\x01%s\x02" % (name.encode(), each) for each in (b"a\xff", b"\xc3\xa9")]
    options = "'topic' = 't', 'on-error' = 'dead-letter', 'dead-letter-topic' = 'letters'"
    for query in (
        "SELECT a, COUNT(*) FROM t GROUP BY a",
        "SELECT MAX(a), COUNT(*) FROM t",
        "SELECT DISTINCT a, 1 FROM t",
    ):
        script = Script()
        script.run(
            f"CREATE TABLE t (id INT, {column}) WITH ({options});"
            f"CREATE TABLE sink (a STRING, n BIGINT) WITH ('topic' = 'sink'); INSERT INTO sink {query};"
        )
        eager = _WithProperties({"t": bodies}, is_endless=False)
        assert [json.loads(body_of(each)) for each in eager.run(script.sinks[0])] == [{"a": "é", "n": 1}]
        (letter,) = eager.letters
        assert letter.reason == f"column {column[0]}: 'a\\udcff' has half of a surrogate pair, which is not UTF-8"


@pytest.mark.parametrize(("zone", "bad"), [("Europe/Berlin", 1), ("America/New_York", 2)])
def test_sessions_that_begin_or_end_in_another_year_by_the_clock(zone: str, bad: int) -> None:
    """The clock of New York is in the year 0 still, that of Berlin in the year 10000: only their text fails."""
    times = ("0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z")
    bodies = [json.dumps({"a": each}).encode() for each in times]
    table = (
        f"SET 'table.local-time-zone' = '{zone}'; CREATE TABLE t (a TIMESTAMP_LTZ(3), WATERMARK FOR a AS a) "
        "WITH ('topic' = 't', 'on-error' = 'dead-letter', 'dead-letter-topic' = 'letters');"
        "CREATE TABLE sink (n BIGINT, b STRING, e STRING) WITH ('topic' = 'sink');"
    )
    bounds = (f"CAST(SESSION_{each}(a, INTERVAL '1' DAY) AS STRING)" for each in ("START", "END"))
    for columns, count in (("'', ''", 0), (", ".join(bounds), bad)):
        script = Script()
        script.run(f"{table} INSERT INTO sink SELECT COUNT(*), {columns} FROM t GROUP BY SESSION(a, INTERVAL '1' DAY);")
        eager = Eager({"t": bodies}, is_endless=False)
        with in_zone(zone):
            found = eager.run(script.sinks[0])
        assert (len(found), len(eager.letters)) == (3 - count, count)
        assert all("not in the years 1 to 9999" in each.reason for each in eager.letters)
