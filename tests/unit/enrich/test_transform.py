"""`Enrich` adds columns to elements of all kinds, one by one and in batches; what cannot be looked up is an error."""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
import uuid
from collections import OrderedDict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.error_handling import ErrorHandler

pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")
import pyarrow as pa

from rmqio import Batch, MessageQueue
from rmqio.enrich import Enrich, Table
from rmqio.enrich.refresh import close_all
from rmqio.enrich.transform import Merge, fields_of
from rmqio.errors import LocalError, SerdeError
from rmqio.serde import JsonSerializer
from rmqio.testing import InMemoryClientFactory
from tests.helpers.waiting import until

USERS = pa.table({"id": ["a", "b", "b"], "tier": ["gold", "tin", "zinc"], "visits": [1, 2, 3]})


ODD = [
    None, True, 0, -1, 2**31, 2**63, 2**64, 10**400, -0.0, 1.5, math.nan, math.inf, "", "a", "\ud800", "x" * 100_000,
    b"", b"\xff", Decimal("1.00"), Decimal("NaN"), Decimal("1e400"), Fraction(1, 2), dt.date(2024, 1, 1),
    dt.datetime.max, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.time(1), dt.timedelta(1), [], {}, {1}, (), ("a", 1),
    object(), int, 1j, bytearray(b"a"), memoryview(b"a"), uuid.UUID(int=1),
]  # fmt: skip
KEYS = {
    "text": pa.array(["a", ""]), "number": pa.array([1, 2]), "small": pa.array([1, 2], pa.uint8()),
    "bytes": pa.array([b"a", b""]), "truth": pa.array([True, False]),
    "day": pa.array([dt.date(2024, 1, 1), dt.date.max]),
    "decimal": pa.array([Decimal("1.00"), Decimal("2.00")]),
}  # fmt: skip


class Order(NamedTuple):
    id: str
    amount: int


class Enriched(NamedTuple):
    id: str
    amount: int
    tier: str | None


@pytest.fixture
def users(tmp_path: Path) -> Any:
    yield Table.from_arrow(USERS, cache_dir=str(tmp_path))
    close_all()


def run(elements: list[Any], enrich: Enrich) -> list[Any]:
    found: list[Any] = []
    fn = enrich_fn(enrich)
    fn.setup()
    fn.start_bundle()
    for element in elements:
        found += fn.process(element, timestamp=beam.utils.timestamp.Timestamp(0))
    fn.teardown()
    return found


def enrich_fn(enrich: Enrich, *, errors_to_output: bool = False) -> Any:
    from rmqio.enrich.transform import EnrichFn

    look_up = pickle.loads(pickle.dumps(enrich._look_up))
    return EnrichFn(look_up, "step", batches=enrich._batches, errors_to_output=errors_to_output)


@pytest.mark.parametrize("names", [[each] for each in KEYS] + [["text", "number"]], ids="-".join)
def test_whatever_a_key_is_it_is_looked_up_or_an_error(names: list[str], tmp_path: Path) -> None:
    table = Table.from_arrow(pa.table({**{each: KEYS[each] for each in names}, "row": [1, 2]}), cache_dir=str(tmp_path))
    for how in ({"batches": True}, {"duplicates": "all"}):
        fn = enrich_fn(Enrich(table, names, **how), errors_to_output=True)
        fn.setup()
        fn.start_bundle()
        elements: list[Any] = [dict.fromkeys(names, each) for each in ODD]
        count = 0
        for element in [elements] if "batches" in how else elements:
            for found in fn.process(element, timestamp=beam.utils.timestamp.Timestamp(0)):
                count += len(found) if isinstance(found, list) else 1
        assert count == len(ODD)
        fn.teardown()
    close_all()


CASES: list[tuple[Any, dict[str, Any], list[Any]]] = [
    ({"id": "a"}, {}, [{"id": "a", "tier": "gold", "visits": 1}]),
    ({"id": "x"}, {}, [{"id": "x", "tier": None, "visits": None}]),
    ({"id": None}, {}, [{"id": None, "tier": None, "visits": None}]),
    ({}, {}, [{"tier": None, "visits": None}]),
    ({"id": "x"}, {"how": "inner"}, []),
    ({"id": "b"}, {"columns": ["visits"], "prefix": "user_"}, [{"id": "b", "user_visits": 2}]),
    ({"id": "b"}, {"duplicates": "last", "columns": "tier"}, [{"id": "b", "tier": "zinc"}]),
    (
        {"id": "b"},
        {"duplicates": "all", "columns": "tier"},
        [{"id": "b", "tier": "tin"}, {"id": "b", "tier": "zinc"}],
    ),
    ({"user": "a"}, {"key": {"user": "id"}, "columns": ["tier"]}, [{"user": "a", "tier": "gold"}]),
    ({"id": "a", "visits": 1}, {"key": ["id", "visits"]}, [{"id": "a", "visits": 1, "tier": "gold"}]),
    (b'{"id": "a"}', {"columns": ["tier"]}, [{"id": "a", "tier": "gold"}]),
    (beam.Row(id="a"), {"columns": ["tier"]}, [beam.Row(id="a", tier="gold")]),
    (Order("a", 5), {"columns": ["tier"]}, [beam.Row(id="a", amount=5, tier="gold")]),
    (Order("a", 5), {"columns": ["tier"], "output_type": Enriched}, [Enriched("a", 5, "gold")]),
]


@pytest.mark.parametrize(("element", "options", "expected"), CASES)
@pytest.mark.parametrize("batches", [False, True])
def test_elements_get_columns(
    element: Any, options: dict[str, Any], expected: list[Any], batches: bool, users: Table
) -> None:
    given = {"key": "id", "duplicates": "first", **options}
    enrich = Enrich(users, given.pop("key"), batches=batches, **given)
    queue = MessageQueue("orders", "broker-a", 0)
    if not batches:
        assert run([element], enrich) == expected
        return
    found = run([Batch([element, element], queue, [7, 8])], enrich)
    assert [list(each) for each in found] == ([expected * 2] if expected else [])
    if expected:
        assert list(found[0].offsets) == [7] * len(expected) + [8] * len(expected)


class Refusing:
    def __init__(self, **fields: Any) -> None:
        raise ValueError("no such order")


BAD: list[tuple[Any, dict[str, Any], str]] = [
    ({"id": 5}, {}, r"the key has the type int \(id\), and in the table id is text"),
    ({"id": "a", "tier": 1}, {}, "has a field tier already: give Enrich a prefix"),
    (Order("a", 1), {"key": "idd"}, "Order has no field idd, the key; did you mean id"),
    (b"{", {}, "the body is not JSON"),
    (b"[]", {}, "the body is JSON, but not an object"),
    ({"id": "x"}, {"on_missing": "error"}, "the table has no row with the key id = 'x'"),
    (Order("a", 1), {"output_type": Order}, "unexpected keyword"),
    (Order("a", 1), {"output_type": Refusing}, "no such order"),
]


@pytest.mark.parametrize(("element", "options", "message"), BAD)
def test_what_cannot_be_looked_up_is_an_error(
    element: Any, options: dict[str, Any], message: str, users: Table
) -> None:
    given = {"key": "id", "duplicates": "first", **options}
    key = {given["key"]: "id"}
    del given["key"]
    with pytest.raises(Exception, match=message):
        run([element], Enrich(users, key, **given))
    queue = MessageQueue("orders", "broker-a", 0)
    with pytest.raises(Exception, match=f"queue orders/broker-a/0, offset [78]: .*{message}"):
        run([Batch([{"id": "a"}, element], queue, [7, 8])], Enrich(users, key, batches=True, **given))


def test_a_row_counts_at_the_time_of_its_element(tmp_path: Path) -> None:
    days = [dt.datetime(2024, month, 1, tzinfo=dt.UTC) for month in (1, 2)]
    prices = pa.table({"id": ["a", "a"], "price": [1, 2], "since": pa.array(days, pa.timestamp("us", "UTC"))})
    table = Table.from_arrow(prices, valid_from="since", cache_dir=str(tmp_path))
    ms = [int(each.timestamp() * 1000) for each in days]
    elements = [{"id": "a", "ts": each} for each in (ms[0], ms[0] - 1, days[1], "x")]
    enrich = Enrich(table, "id", ["price"], at="ts")
    assert [each["price"] for each in run(elements[:3], enrich)] == [1, None, 2]
    with pytest.raises(Exception, match="the field ts is 'x'"):
        run(elements[3:], enrich)
    with beam.Pipeline() as pipeline:
        stamped = [beam.window.TimestampedValue({"id": "a"}, each / 1000 + 5) for each in ms]
        found = pipeline | beam.Create([0]) | beam.FlatMap(lambda _: stamped) | Enrich(table, "id", ["price"])
        assert_that(found, equal_to([{"id": "a", "price": 1}, {"id": "a", "price": 2}]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "outer"}, 'must be "left" or "inner"'),
        ({"key": ["id", "id"]}, "key names a field twice: id, id; name each once"),
        ({"key": {"a": "id", "b": "id"}}, "key names a column of the table twice: id, id; name each once"),
        ({"columns": ["tier", "tier"]}, "columns names a column of the table twice: tier, tier; name each once"),
        ({"on_missing": "drop"}, 'how="inner"'),
        ({"duplicates": "any"}, "must be one of error, first, last, all"),
        ({"refresh_s": 0}, "refresh_s is 0"),
        ({"refresh_s": float("nan")}, "refresh_s is nan"),
        ({"max_age_s": 5, "refresh_s": None}, "max_age_s needs refresh_s"),
        ({"max_age_s": 600}, "max_age_s is 600 and refresh_s 3600"),
        ({"on_refresh_error": "ignore"}, "keep_previous or fail"),
        ({"columns": []}, "columns is empty"),
        ({"at": "ts"}, "at needs a table with valid_from"),
    ],
)
def test_wrong_options_fail_when_it_is_built(options: dict[str, Any], message: str, users: Table) -> None:
    with pytest.raises(LocalError, match=message):
        Enrich(users, **{"key": "id", **options})


def test_a_bad_member_goes_alone_to_the_errors(users: Table) -> None:
    batch = Batch([{"id": "a"}, {"id": 5}, {"id": "b"}], MessageQueue("t", "b", 0), [1, 2, 3])
    with beam.Pipeline() as pipeline:
        with ErrorHandler(beam.Map(lambda failure: (failure.error, failure.queue_offset))) as handler:
            enrich = Enrich(users, "id", ["tier"], duplicates="first", batches=True).with_error_handler(handler)
            found = pipeline | beam.Create([0]) | beam.FlatMap(lambda _: [batch]) | enrich | beam.Map(list)
            assert_that(found, equal_to([[{"id": "a", "tier": "gold"}, {"id": "b", "tier": "tin"}]]))
        assert_that(handler.output(), equal_to([("SerdeError", 2)]), label="errors")


def test_a_bundle_without_an_end_gets_new_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.enrich.transform._KEPT_S", 0.05)
    path = tmp_path / "rows.csv"
    path.write_text("id,v\na,1\n")
    fn = enrich_fn(Enrich(Table.from_csv(str(path), cache_dir=str(tmp_path / "cache")), "id", refresh_s=0.1))
    fn.setup()
    fn.start_bundle()
    values: list[str] = []
    path.with_suffix(".new").write_text("id,v\na,two\n")

    def is_new() -> bool:
        values.extend(each["v"] for each in fn.process({"id": "a"}, timestamp=None))
        if values == ["1"]:
            path.with_suffix(".new").rename(path)
        return "two" in values

    until(is_new, "the new rows", details=lambda: values)
    close_all()
    assert (values[0], values[-1]) == ("1", "two")


CSV = 'id,name,day,price\n007,"Ann, the ""first""",2024-01-31,1.50\n008,,,\n'


def test_csv_is_typed_and_never_guessed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    types = {"day": "date32", "price": "decimal128(10, 2)"}
    table = Table.from_csv(str(tmp_path / "*.csv"), types=types, cache_dir=str(tmp_path / "cache"))
    from decimal import Decimal

    first, second = run([{"id": "007"}, {"id": "008"}], Enrich(table, "id"))
    assert first == {"id": "007", "name": 'Ann, the "first"', "day": dt.date(2024, 1, 31), "price": Decimal("1.50")}
    assert second == {"id": "008", "name": None, "day": None, "price": None}
    wrong = {"prise": "int8"}, {"day": "dat"}, {"name": "int8"}
    for types, message in zip(wrong, ("no column prise; did you mean price", "'dat'", "be read as CSV"), strict=True):
        table = Table.from_csv(str(tmp_path / "a.csv"), types=types, cache_dir=str(tmp_path / "cache"))
        with pytest.raises(LocalError, match=message):
            run([], Enrich(table, "id"))


@pytest.mark.parametrize("text", ["id,name", "id,name\n", "\ufeffid,name\r\n", '"id","name"\n\n'])
def test_a_csv_file_with_names_only_is_a_table_without_rows(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text(text)
    table = Table.from_csv(str(tmp_path / "a.csv"), types={"id": "int64"}, cache_dir=str(tmp_path / "cache"))
    assert run([{"id": 1}], Enrich(table, "id")) == [{"id": 1, "name": None}]
    assert "it has no rows" in caplog.text


def test_an_empty_csv_file_is_an_error_unless_its_columns_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    with pytest.raises(LocalError, match="is empty: it has no line with the names of its columns"):
        run([{"id": "1"}], Enrich(Table.from_csv(str(tmp_path / "a.csv"), cache_dir=str(tmp_path / "cache")), "id"))
    table = Table.from_csv(str(tmp_path / "a.csv"), names=["id", "n"], cache_dir=str(tmp_path / "cache"))
    assert run([{"id": "1"}], Enrich(table, "id")) == [{"id": "1", "n": None}]


def test_a_dict_of_another_class_keeps_its_fields() -> None:
    element = OrderedDict(order=7, user="u1")
    assert Merge(["tier"], None)(element, ("gold",)) == {"order": 7, "user": "u1", "tier": "gold"}
    with pytest.raises(SerdeError, match="has a field order already"):
        Merge(["order"], None)(element, (1,))


def test_numbers_of_a_body_go_on_with_all_digits() -> None:
    body = b'{"id":"a","n":12345678901234567890.0123456789}'
    assert JsonSerializer()(Merge(["tier"], None)(fields_of(body), (1,))).body == body[:-1] + b',"tier":1}'


def test_a_body_that_is_nested_too_deeply_is_an_error_of_its_own() -> None:
    with pytest.raises(SerdeError, match="the body is nested too deep"):
        fields_of(b"[" * 100_000)


def upper(record: Any) -> Any:
    return json.loads(record.body.upper())


def lower(record: Any) -> Any:
    return json.loads(record.body.lower())


def test_topics_with_other_deserializers_or_clusters_are_other_tables() -> None:
    def identity(**more: Any) -> Any:
        return Table.from_topic("t", types={"k": "string"}, **more).source.identity()

    here, there = InMemoryClientFactory("a"), InMemoryClientFactory("b")
    made = [identity(client_factory=here), identity(client_factory=there)]
    made += [identity(client_factory=here, deserializer=each) for each in (upper, lower)]
    assert len(set(made)) == 4
    assert identity(client_factory=InMemoryClientFactory("a"), deserializer=upper) == made[2]
