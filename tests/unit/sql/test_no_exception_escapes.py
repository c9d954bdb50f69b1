"""Whatever the values and the bytes, a row comes out or is bad for a reason, or the query is refused.

An exception of a class that nobody expects is counted, and fails the test: see `no_internal_errors`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from apache_beam.metrics.metric import MetricsFilter
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rmqio.errors import TransportError
from rmqio.sql.compile.description import Fragment, FromRows, FromTable, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import Refusal, SqlError
from rmqio.sql.functions import registry
from rmqio.sql.planning.plan import Field
from rmqio.sql.rows import pack, unpacker
from rmqio.sql.values import ValueFailure
from rmqio.testing import InMemoryCluster
from tests.helpers.oracles.grid import TYPES, Call, calls, row
from tests.unit.sql.evaluating import bound, type_of
from tests.unit.sql.formats.support import encode, table_with
from tests.unit.sql.job_support import cluster, job, put, rows, stored
from tests.unit.sql.test_text import unspoken

__all__ = ["cluster"]

ERROR = KeyError("seven")
PHASES: Final = (Phase.explicit, Phase.reuse, Phase.generate)
"""A random generator has no smaller one."""
RANDOMS: Final = st.integers(0, 1 << 32).map(Random)


def run(call: Call, rows: list[tuple[Any, ...]]) -> int:
    """Returns how many of the rows there are, as values or as bad rows; 0 if the call is refused."""
    try:
        expression, fields = bound(call.text, {f"c{at}": (kind, None) for at, kind in enumerate(call.types)})
    except SqlError as error:
        refusal = str(error)
    else:
        refusal = ""
        mapped = compiled(Fragment(FromRows(fields), (Step(None, (expression,)),), ToRows()))(rows)
        assert all(str(error) and not unspoken(str(error)) for error in mapped.failed.values())
        travel(mapped.values, [Field("x", expression.type)])
    assert not unspoken(refusal)
    if refusal:
        return 0
    return len(mapped.values) + len(mapped.failed)


def travel(rows: list[tuple[Any, ...]], fields: Sequence[Field]) -> None:
    """Fails for a row that is another one behind a shuffle. No source gives the half of a surrogate pair in it."""
    unpack = unpacker(fields)
    for each in rows:
        if "\\ud800" not in repr(each):
            assert repr(unpack(pack(each))) == repr(each), fields


@settings(max_examples=2, phases=PHASES)
@given(RANDOMS)
def test_functions(random: Random) -> None:
    bound_ones = 0
    for call in calls(random):
        given = [row(call.types, random) for _ in range(10)]
        found = run(call, given)
        assert found in (0, len(given)), call
        bound_ones += bool(found)
    assert bound_ones > 120


FORMATS: Final[tuple[dict[str, str], ...]] = (
    {}, {"json__timestamp_format__standard": "ISO-8601"}, {"json__fail_on_missing_field": "true"}, {"format": "csv"},
    {"format": "csv", "csv__field_delimiter": ";", "csv__escape_character": "\\", "csv__null_literal": "NULL"},
    {"format": "csv", "csv__disable_quote_character": "true"}, {"format": "key-value"}, {"format": "raw"},
    {"format": "avro"}, {"format": "grok", "grok_pattern": "%{IPORHOST:c0}:%{NUMBER:c1} %{GREEDYDATA:c2}"},
)  # fmt: skip
LINES: Final[tuple[tuple[dict[str, str], str], ...]] = (
    ({"format": "syslog"}, "priority hostname timestamp message"),
    ({"format": "cef"}, "severity extension name"),
)
BODIES: Final = (
    b"", b"null", b"[]", b"{}", b'"x"', b"1", b"{", b"\xff", b"\x00", b'{"c0": 1e999}', b'{"c0": "\\ud800"}',
    b'{"c0": ' + b"9" * 5000 + b"}", b'{"c0": ' + b"[" * 2000 + b"]" * 2000 + b"}", b'{"c0": true, "c0": 2}',
    b'{"c0": NaN}',
    b'{"c0":"\xed\xa0\x80"}', b'"', b'","', b"a,b\n\n", b"=", b"c0=1,c0=2", b"c0", b"\n\n\n", b"   ", b"::1:80 x",
    b'<34>1 2003-10-11T22:14:15.003Z m a - ID47 [x y="z"] hi', b"<999>1 - - - - - -", b"<34>", b"CEF:0|a|b|c|d|e|f|k=v",
    b"CEF:0|", b"CEF:0|a|b|c|d|e|f|=",
)  # fmt: skip
JSON: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 2**63, 10**400, 1.5, -0.0, 1e308, "", "x", "12", "NaN", "2024-02-30", [], [None], {},
    {"a": None},
    {"": []}, "\x00", "true", "1e400", "99999-01-01 00:00:00", "2024-01-01T00:00:00Z", "AAE=", "A", [[1]],
)  # fmt: skip


@settings(max_examples=4, phases=PHASES)
@given(RANDOMS)
def test_bodies(random: Random) -> None:
    for options in FORMATS:
        names = ["c0", "c1", "c2"][: 1 if options.get("format") == "raw" else random.randrange(1, 4)]
        read(random, options, [(name, random.choice(TYPES)) for name in names])


@settings(max_examples=10, phases=PHASES)
@given(RANDOMS, st.sampled_from(LINES))
def test_lines(random: Random, line: tuple[dict[str, str], str]) -> None:
    options, names = line
    read(random, options, [(name, random.choice(TYPES)) for name in random.sample(names.split(), 2)])


def read(random: Random, options: dict[str, str], columns: list[tuple[str, str]]) -> None:
    """Reads bodies that are right, changed, or anything else."""
    try:
        table = table_with([(name, type_of(kind)) for name, kind in columns], **options)
    except Refusal:
        return
    bodies = [*BODIES, *(json.dumps({name: random.choice(JSON) for name, _ in columns}).encode() for _ in range(10))]
    for _ in range(5):
        try:
            body = encode(table, row(tuple(kind for _, kind in columns), random))
        except (ValueFailure, UnicodeError, Refusal):
            continue
        bodies += [body, changed(body, random)]
    mapped = compiled(Fragment(FromTable(table, table.columns), (), ToRows()))(
        [SimpleNamespace(body=each) for each in bodies]
    )
    assert len(mapped.values) + len(mapped.failed) == len(bodies)
    travel(mapped.values, [Field(each.name, each.type) for each in table.columns])


def changed(body: bytes, random: Random) -> bytes:
    at = random.randrange(len(body) + 1)
    part = random.choice([b'"', b",", b"{", b"]", b"\\", b"=", b"\n", b"\xff", b"null", b"", random.randbytes(3)])
    return body[:at] + part + body[at + random.randrange(3) :]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function BROKEN gives its argument back, but for 7."""

    def call(value: int) -> int:
        if value == 7:
            raise ERROR
        return value

    monkeypatch.setitem(registry.load(), "BROKEN", registry.Function("BROKEN", ("i -> i",), call))


def test_an_unexpected_exception_fails_its_row(
    broken: None, no_internal_errors: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    expression, fields = bound("1 + BROKEN(c0)", {"c0": ("INT", None)})
    run = compiled(Fragment(FromRows(fields), (Step(None, (expression,)),), ToRows()))
    with caplog.at_level(logging.ERROR):
        mapped = run([(6,), (7,), (8,), (7,)])
    assert mapped.values == [(7,), (9,)]
    assert {at: str(error) for at, error in mapped.failed.items()} == dict.fromkeys(
        (1, 3), "BROKEN(c0): internal error: KeyError: 'seven'"
    )
    (told,) = caplog.records
    assert told.exc_info is not None
    assert told.exc_info[1] is ERROR
    assert no_internal_errors == [1, 1]
    no_internal_errors.clear()


@pytest.mark.parametrize("error", [TransportError("away"), OSError("away"), MemoryError()])
def test_what_no_row_caused_goes_on(broken: None, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ERROR", error)
    expression, fields = bound("BROKEN(c0)", {"c0": ("INT", None)})
    run = compiled(Fragment(FromRows(fields), (Step(None, (expression,)),), ToRows()))
    with pytest.raises(type(error)):
        run([(7,)])


@pytest.mark.parametrize("statement", ["BROKEN(a)", "SUM(BROKEN(a))"])
def test_a_job_goes_on(broken: None, statement: str, cluster: InMemoryCluster, no_internal_errors: list[int]) -> None:
    put(cluster, "t", {"a": 1}, {"a": 7}, {"a": 2})
    result = job(
        cluster,
        f"""
        CREATE TABLE t (a INT) WITH ('topic' = 't', 'on-error' = 'dead-letter', 'dead-letter-topic' = 'letters');
        CREATE TABLE sink (a BIGINT) WITH ('topic' = 'sink');
        INSERT INTO sink SELECT {statement} FROM t;
        """,
    )
    assert sum(n for (n,) in rows(cluster)) == 3
    (letter,) = stored(cluster, "letters")
    assert b'"a": 7' in letter.body or b'"a":7' in letter.body
    query = result.metrics().query(MetricsFilter().with_name("internal_errors"))
    assert [each.committed for each in query["counters"]] == [1]
    assert no_internal_errors == [1]
    no_internal_errors.clear()
