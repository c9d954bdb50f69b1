"""Files take a value as it is, or refuse its row: no value is changed without a word."""

from __future__ import annotations

import datetime as dt
import io
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from rmqio.connect.files.formats import FileFormat
from rmqio.serde.strict_json import JsonNumber

TIME = dt.datetime(2024, 1, 2, 3, 4, 5, 6)


def written(kind: FileFormat, values: list[Any]) -> tuple[list[Any], list[str]]:
    """The values of the column `a` of the file, and why others were refused."""
    file = io.BytesIO()
    refused = kind.write([{"a": value} for value in values], file)
    return [row["a"] for row in kind.read(io.BytesIO(file.getvalue()))], [str(error) for _, error in refused]


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize(
    ("first", "changed", "kept"),
    [
        (1, 2.5, 2.0),
        (1, Decimal("2.5"), Decimal(3)),
        (1, float("nan"), 2),
        (1, float("inf"), None),
        (1, UUID(int=5), 2),
        (1, JsonNumber("9007199254740993.0"), 2.0),
        (0.5, True, 2),
        (0.5, JsonNumber("-1e400"), float("inf")),  # it would be infinite
        (dt.date(2024, 1, 2), TIME, None),
        (dt.date(2024, 1, 2), 5, dt.date(1969, 1, 2)),
        (TIME, 5, TIME.replace(year=1969)),
        (TIME, 2.5, TIME),
        (dt.time(1, 2, 3), 5, dt.time(4)),
        (dt.timedelta(hours=26), 5, dt.timedelta(days=-1)),
    ],
)
def test_parquet_changes_no_value_to_fit_the_type_of_the_first_rows(
    first: Any, changed: Any, kept: Any, is_nested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="files of parquet need pyarrow")
    monkeypatch.setattr("rmqio.connect.files.parquet.GROUP_ROWS", 2)
    values = [first, None, changed, kept]
    if is_nested:
        values = [{"b": [value]} for value in values]
    found, refused = written(FileFormat("parquet"), values)
    assert found == [value for value in values if value is not values[2]]
    where = "a.b" if is_nested else "a"
    assert [each.partition(": ")[2].startswith(f"{where} is {changed!r}") for each in refused] == [True], refused


def test_numbers_of_json_fill_a_column_of_decimals_with_all_digits() -> None:
    pa = pytest.importorskip("pyarrow", reason="files of parquet need pyarrow")
    kind = FileFormat("parquet", schema=pa.schema([("a", pa.decimal128(30, 10))]))
    digits = "12345678901234567890.0123456789"
    numbers = [JsonNumber(digits), 1.5, 2, Decimal("0.25"), None]
    found, refused = written(kind, [*numbers, float("nan"), JsonNumber("0.12345678901234567"), "1.5"])
    assert found == [Decimal(digits), Decimal("1.5"), Decimal(2), Decimal("0.25"), None]
    assert len(refused) == 3


@pytest.mark.parametrize("form", ["list", "struct", "map", "lists"])
def test_decimals_inside_of_values_have_all_digits_too(form: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="files of parquet need pyarrow")
    decimal, digits = pa.decimal128(30, 10), "12345678901234567890.0123456789"
    kind, value = {
        "list": (pa.list_(decimal), [JsonNumber(digits), 1.5, None]),
        "struct": (pa.struct([("b", decimal), ("c", pa.float64())]), {"b": JsonNumber(digits), "c": 1.5}),
        "map": (pa.map_(pa.string(), decimal), {"b": JsonNumber(digits), "c": None}),
        "lists": (pa.list_(pa.struct([("b", pa.list_(decimal))])), [{"b": [JsonNumber(digits)]}, {"b": None}]),
    }[form]
    found, refused = written(FileFormat("parquet", schema=pa.schema([("a", kind)])), [value, None])
    assert not refused
    assert found[1] is None
    assert f"Decimal('{digits}')" in str(found[0])


def test_parquet_keeps_fractions_beside_an_integer_that_no_float_can_hold() -> None:
    pytest.importorskip("pyarrow", reason="files of parquet need pyarrow")
    found, refused = written(FileFormat("parquet"), [1, 2.5, 2**53 + 1])
    assert found == [1, 2**53 + 1]
    assert refused == ["it does not fit: a is 2.5, which int64 would change"]


def test_a_schema_of_parquet_takes_integers_as_times_in_its_unit() -> None:
    pa = pytest.importorskip("pyarrow", reason="files of parquet need pyarrow")
    schema = pa.schema([("a", pa.timestamp("ms"))])
    found, refused = written(FileFormat("parquet", None, schema), [1_700_000_000_123, 2.5, TIME])
    assert found == [dt.datetime(2023, 11, 14, 22, 13, 20, 123_000), TIME.replace(microsecond=0)]
    assert len(refused) == 1


def avro(kind: Any) -> FileFormat:
    pytest.importorskip("fastavro", reason="files of avro need fastavro")
    return FileFormat("avro", None, {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]})


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("unit", ["millis", "micros"])
def test_a_time_without_a_zone_is_utc_in_avro_whatever_the_zone_of_the_machine(unit: str, berlin: None) -> None:
    """Databases give such times. fastavro takes them as those of the machine."""
    kind = {"type": "long", "logicalType": f"timestamp-{unit}"}
    east = dt.timezone(dt.timedelta(hours=2))
    values = [TIME.replace(microsecond=0), dt.datetime(1920, 7, 1), dt.datetime(2024, 3, 31, 2, 30, tzinfo=east)]
    utc = [value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value for value in values]
    assert written(avro(kind), values) == (utc, [])
    nested = [{"b": [value]} for value in values]
    items = {"type": "array", "items": ["null", {"type": "map", "values": kind}, kind]}
    inner = {"type": "record", "name": "i", "fields": [{"name": "b", "type": items}]}
    assert written(avro(["null", inner]), nested) == ([{"b": [value]} for value in utc], [])


def test_a_time_with_a_zone_is_utc_in_a_field_of_local_times() -> None:
    kind = {"type": "long", "logicalType": "local-timestamp-micros"}
    east = TIME.replace(tzinfo=dt.timezone(dt.timedelta(hours=3)))
    assert written(avro(kind), [TIME, east]) == ([TIME, TIME - dt.timedelta(hours=3)], [])


def test_a_number_beyond_a_double_does_not_fit_one_of_avro() -> None:
    found, refused = written(avro("double"), [JsonNumber("0.12345678901234567"), JsonNumber("1e400"), float("inf")])
    assert found == [0.12345678901234567, float("inf")]
    assert refused == ["it does not fit: 1e400 would become inf, since the type of its field is a float"]


@pytest.mark.parametrize("kind", ["double", ["null", "double", "long"]])
def test_an_integer_that_would_become_another_one_does_not_fit_a_float_of_avro(kind: Any) -> None:
    found, refused = written(avro(kind), [2**53, 2**53 + 1, -(2**60)])
    assert found == [2**53, -(2**60)]
    assert refused == [
        "it does not fit: 9007199254740993 would become 9007199254740992, since the type of its field is a float"
    ]
    assert written(avro(["null", "long", "double"]), [2**53 + 1, 0.5]) == ([2**53 + 1, 0.5], [])
