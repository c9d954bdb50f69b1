"""Many Avro bodies to Arrow columns in C, which must agree with fastavro on values and on broken bodies."""

from __future__ import annotations

import datetime
import decimal

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.serde.avro import AvroSerializer, bulk
from tests.helpers.serde.avro_records import logical, record
from tests.helpers.transforms.records import record_of
from tests.unit.serde.avro.bulk.support import (
    in_python,
    spoilt,
)

pytestmark = pytest.mark.skipif(
    bulk.new_values is None, reason="the C extension is not built, or RMQIO_PURE_PYTHON is set"
)


def exact(digits: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda n: decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=60)))


def whole_millis(time: datetime.time) -> datetime.time:
    return time.replace(microsecond=time.microsecond // 1_000 * 1_000)


LINES = st.none() | st.fixed_dictionaries(
    {"sku": st.text(max_size=3), "tags": st.lists(st.none() | st.text(max_size=2), max_size=3)}
)
MAPS = st.dictionaries(st.text(max_size=1), st.floats(allow_nan=False), max_size=2)
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | st.text(max_size=9),
        "flag": st.booleans(),
        "ratio": st.none() | st.floats(width=32, allow_nan=False),
        "price": exact(38, 10),
        "fixed": exact(9, 3),
        "raw": st.binary(min_size=3, max_size=3),
        "state": st.sampled_from(["NEW", "PAID"]),
        "never": st.none(),
        "time": st.times(),
        "milli": st.times().map(whole_millis),
        "at": st.none()
        | st.integers(-(10**9), 10**10).map(lambda at: datetime.datetime.fromtimestamp(at, datetime.UTC)),
        "line": LINES,
        "lines": st.lists(LINES, max_size=3),
        "by_name": st.dictionaries(st.text(max_size=2), st.none() | MAPS, max_size=2),
    }
)


def test_columns_agree_with_dicts_whatever_is_broken() -> None:
    pytest.importorskip("pyarrow", reason="Arrow batches need pyarrow, which the extra 'spark' has")
    from rmqio.serde.avro.arrow import AvroToArrow

    schema = record(
        id="long",
        text=["string", "null"],
        flag="boolean",
        ratio=["null", "float"],
        price=logical("bytes", "decimal", precision=38, scale=10),
        fixed={"type": "fixed", "name": "F", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 3},
        raw={"type": "fixed", "name": "G", "size": 3},
        state={"type": "enum", "name": "E", "symbols": ["NEW", "PAID"]},
        never=["null"],
        time=logical("long", "time-micros"),
        milli=logical("int", "time-millis"),
        at=["null", logical("long", "timestamp-millis")],
        line=["null", record("Line", sku="string", tags={"type": "array", "items": ["null", "string"]})],
        lines={"type": "array", "items": ["null", "Line"]},
        by_name={"type": "map", "values": ["null", {"type": "map", "values": "double"}]},
    )

    serializer = AvroSerializer(schema)

    @given(st.data())
    @settings(max_examples=150)
    def agree(data: st.DataObject) -> None:
        bodies = [spoilt(data, serializer(each).body) for each in data.draw(st.lists(ROWS, max_size=6))]
        records = [record_of(body) for body in bodies]
        made, reference = AvroToArrow(schema, on_error="null"), in_python(lambda: AvroToArrow(schema, on_error="null"))
        assert made._columns is not None
        assert reference._columns is None
        found = made.decode(records)
        found.validate(full=True)
        assert found.equals(reference.decode(records))
        assert found.to_pylist() == reference.decode(records).to_pylist()

    agree()
