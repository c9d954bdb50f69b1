"""The function that `enrich` gives `mapInArrow`: columns in C and values of Python give the same batches."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")

import pyarrow as pa

from rmqio.enrich import Table
from rmqio.enrich.loading import Wanted
from rmqio.enrich.refresh import Schedule, close_all
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError
from rmqio.pyspark.enriching import _Enriching

ROWS = {
    "id": ["u1", "u2", "u3"],
    "country": ["de", "de", "fr"],
    "tier": ["gold", None, "tin"],
    "since": [dt.date(2024, 1, 1), None, dt.date(2024, 5, 1)],
}


def enriched(folder: Path, batch: pa.RecordBatch, keys: tuple[str, ...], how: str, *, many: bool = False) -> Any:
    table = Table.from_arrow(pa.table(ROWS), cache_dir=str(folder))
    spec = Spec(keys, ("tier", "since"), "all" if many else "error")
    try:
        (made,) = _Enriching(Wanted(table, spec), Schedule(None), keys, how, many)(iter([batch]))
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
