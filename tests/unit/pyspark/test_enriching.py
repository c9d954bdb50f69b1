"""The function that `enrich` gives `mapInArrow`: columns in C and values of Python give the same batches."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")

import pyarrow as pa

from rmqio.enrich import Table
from rmqio.enrich.refresh import Schedule, close_all
from rmqio.enrich.store import Wanted
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError
from rmqio.pyspark.enriching import _Enriching

ROWS = {
    "id": ["u1", "u2", "u3"],
    "country": ["de", "de", "fr"],
    "tier": ["gold", None, "tin"],
    "since": [dt.date(2024, 1, 1), None, dt.date(2024, 5, 1)],
}


def enriched(
    folder: Path, batch: pa.RecordBatch, keys: tuple[str, ...], how: str, *, many: bool = False, **kinds: pa.DataType
) -> Any:
    table = Table.from_arrow(pa.table(ROWS), cache_dir=str(folder))
    spec = Spec(keys, ("tier", "since"), "all" if many else "error")
    try:
        (made,) = _Enriching(Wanted(table, spec), Schedule(None), keys, how, many, kinds)(iter([batch]))
        return made
    finally:
        close_all()


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize("keys", [("id",), ("id", "country")])
@pytest.mark.parametrize("how", ["left", "inner"])
def test_rows_get_columns(
    is_fast: bool, keys: tuple[str, ...], how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_fast:
        monkeypatch.setattr("rmqio.enrich.lookups.found_columns", lambda table, columns: None)
    given = pa.record_batch(
        {"n": [0, 1, 2, 3, 4], "id": ["u3", "u9", None, "u2", "u1"], "country": ["fr", "de", "de", "de", "fr"]}
    )
    made = enriched(tmp_path, given, keys, how)
    of_u1 = {"tier": "gold", "since": dt.date(2024, 1, 1)} if keys == ("id",) else None
    added = [{"tier": "tin", "since": dt.date(2024, 5, 1)}, None, None, {"tier": None, "since": None}, of_u1]
    none = {"tier": None, "since": None}
    rows = [(row, more) for row, more in zip(given.to_pylist(), added, strict=True) if more or how == "left"]
    assert made.to_pylist() == [{**row, **(more or none)} for row, more in rows]
    assert made.schema.types == [pa.int64(), pa.string(), pa.string(), pa.string(), pa.date32()]


def test_a_key_of_another_type_is_an_error_and_a_key_can_have_several_rows(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="the key id has another type than the table's, which is text"):
        enriched(tmp_path, pa.record_batch({"id": [1]}), ("id",), "left")
    made = enriched(tmp_path, pa.record_batch({"country": ["de", "it"]}), ("country",), "left", many=True)
    assert made.to_pylist() == [
        {"country": "de", "tier": "gold", "since": dt.date(2024, 1, 1)},
        {"country": "de", "tier": None, "since": None},
        {"country": "it", "tier": None, "since": None},
    ]


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize(
    ("column", "wanted", "result"),
    [
        (pa.array([5, None]), pa.int32(), [5, None]),
        (pa.array([5, None]), pa.float64(), [5.0, None]),
        (pa.array([2**40, 1]), pa.int32(), "n of the table is int64, .* int32 in Arrow: Integer value 1099511627776"),
        (pa.array([5, None]), pa.string(), "is int64, .* string in Arrow: that is another kind of value"),
        (pa.array([5, None]), pa.timestamp("us"), "is int64, .* that is another kind of value"),
        (pa.array([5, None], pa.int32()), pa.date32(), "is int32, .* that is another kind of value"),
        (pa.array(["5", None]), pa.int64(), "is string, .* that is another kind of value"),
        (pa.array([1.5, None]), pa.int64(), "is double, .* Float value 1.50* was truncated"),
        (pa.array([dt.datetime(2024, 1, 1), None]), pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1), None]),
        (pa.array([0.123, None]), pa.decimal128(10, 2), "0.123 would become 0.12"),
        (pa.array([0.1, None]), pa.decimal128(10, 2), [Decimal("0.10"), None]),
        (pa.array([1e300, None]), pa.float32(), "1e.300 would become inf"),
        (pa.array([1.5, float("inf")]), pa.float32(), [1.5, float("inf")]),
        (pa.array([Decimal("1.50"), None]), pa.float64(), [1.5, None]),
        (pa.array([Decimal("12345678901234567890.5"), None]), pa.float64(), "12345678901234567890.5 would become 1.23"),
        (pa.array([Decimal("99.99"), None]), pa.float64(), [99.99, None]),
        (pa.array([99.99, float("nan")]), pa.decimal128(10, 2), "Cannot convert nan to Decimal128"),
        (pa.array([99.99, None]), pa.decimal128(10, 2), [Decimal("99.99"), None]),
        (pa.array([Decimal("5.00"), None]), pa.int64(), [5, None]),
        (pa.nulls(2), pa.float64(), [None, None]),
        (pa.array([{"a": 1}, None]), pa.struct({"a": pa.int32()}), [{"a": 1}, None]),
        (pa.array([{"a": 1}, None]), pa.struct({"b": pa.int64()}), "is struct<a: int64>, .* another kind of value"),
        (pa.array([{"a": "1"}, None]), pa.struct({"a": pa.int64()}), "is struct<a: string>, .* another kind of value"),
        (pa.array([["1"], None]), pa.list_(pa.int64()), "is list<.*: string>, .* another kind of value"),
        (pa.array([[0.1], None]), pa.list_(pa.float32()), "is list<.*: double>, .* another kind of value"),
        (pa.array([[1], None]), pa.list_(pa.field("element", pa.int32())), [[1], None]),
    ],
)
def test_columns_have_the_types_that_spark_reads_them_as(
    is_fast: bool, column: pa.Array, wanted: pa.DataType, result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes the memory as it is: a number declared as a timestamp would be some time of 1970."""
    if not is_fast:
        monkeypatch.setattr("rmqio.enrich.lookups.found_columns", lambda table, columns: None)
    table = Table.from_arrow(pa.table({"id": ["a", "b"], "n": column}), cache_dir=str(tmp_path))
    run = _Enriching(Wanted(table, Spec(("id",), ("n",))), Schedule(None), ("id",), "left", False, {"n": wanted})
    try:
        if isinstance(result, str):
            with pytest.raises(LocalError, match=result):
                list(run(iter([pa.record_batch({"id": ["a", "b"]})])))
        else:
            (made,) = run(iter([pa.record_batch({"id": ["a", "b"]})]))
            assert made.column("n").to_pylist() == result
    finally:
        close_all()
