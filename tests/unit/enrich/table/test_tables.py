"""A table gives what a dict gives: for all types of keys, with and without C, however it was built."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqio.enrich import lookups
from rmqio.enrich.table import building, hashing, native
from rmqio.enrich.table.building import build
from rmqio.enrich.table.manifest import BadTable
from rmqio.enrich.table.mapped import MappedTable
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError

TEXT = st.text(max_size=20)
KEYS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), TEXT),
    "large text": (pa.large_string(), TEXT),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), TEXT),
    "bytes": (pa.binary(), st.binary(max_size=20)),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "uint16": (pa.uint16(), st.integers(0, 65535)),
    "uint64": (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "decimal": (pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2)),
}
VALUES = pa.schema(
    [
        ("text", pa.string()), ("number", pa.int32()), ("ratio", pa.float64()), ("flag", pa.bool_()),
        ("day", pa.date32()), ("at", pa.timestamp("us", "Europe/Berlin")), ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())), ("data", pa.binary()), ("big", pa.uint64()),
    ]
)  # fmt: skip
ROW = st.tuples(
    st.none() | TEXT, st.none() | st.integers(-(1 << 31), (1 << 31) - 1), st.none() | st.floats(allow_nan=False),
    st.none() | st.booleans(), st.none() | st.dates(),
    st.none() | st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC)),
    st.none() | st.decimals(-(10**7), 10**7, places=2), st.none() | st.lists(TEXT, max_size=3),
    st.none() | st.binary(max_size=9), st.none() | st.integers(0, (1 << 64) - 1),
)  # fmt: skip


def batches_of(schema: pa.Schema, rows: list[tuple[Any, ...]], size: int = 7) -> Iterator[pa.RecordBatch]:
    for start in range(0, max(len(rows), 1), size):
        columns = list(zip(*rows[start : start + size], strict=True)) or [()] * len(schema)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def same(value: Any) -> Any:
    """The value with its times in UTC: Python never finds times of two zones equal if one of them is ambiguous."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(same, value))
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


@pytest.fixture(params=["memory", "parts"])
def how_built(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "parts":
        monkeypatch.setattr(building, "IN_MEMORY", 0)
    return str(request.param)


@pytest.mark.parametrize(
    "kinds", [*([each] for each in KEYS), ["text", "int64"], ["text", "bytes"], ["date", "bytes", "bool"]], ids="-".join
)
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_it_gives_what_a_dict_gives(
    kinds: list[str], how_built: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    parts = [KEYS[each][1] for each in kinds]
    keys = st.tuples(*parts)
    rows = data.draw(st.lists(st.tuples(keys, ROW), max_size=40))
    how = data.draw(st.sampled_from(["first", "last", "all"]))
    names = [f"k{place}" for place in range(len(kinds))]
    schema = pa.schema([*zip(names, (KEYS[each][0] for each in kinds), strict=True), *VALUES])
    folder = tmp_path_factory.mktemp("table")
    made = build(batches_of(schema, [(*key, *row) for key, row in rows]), Spec(tuple(names), None, how), folder)
    wanted: dict[Any, Any] = {}
    for key, row in rows:
        key = key if len(kinds) > 1 else key[0]
        if how == "all":
            wanted.setdefault(key, []).append(row)
        elif how == "last" or key not in wanted:
            wanted[key] = row
    asked = [*wanted, *data.draw(st.lists(keys if len(kinds) > 1 else parts[0], max_size=9)), None]
    expected = [wanted.get(each) for each in asked]
    for plain in (False, True):
        table = MappedTable(folder, plain=plain)
        assert same(table.get(asked, many=how == "all")) == expected
        assert [same(table.get_one(each, many=how == "all")) for each in asked] == expected
    if how != "all":
        assert {key: same(row) for key, row in table.rows()} == wanted
        check_columns(MappedTable(folder), [KEYS[each][0] for each in kinds], asked, expected)
    assert made.rows == (len(rows) if how == "all" else len(wanted))


def check_columns(table: MappedTable, kinds: list[pa.DataType], asked: list[Any], expected: list[Any]) -> None:
    """From Arrow to Arrow, the table gives the same. Lists are no columns that C copies."""
    names = [name for name in table.columns if name != "tags"]
    table = table.select(names)
    parts = [[each] for each in asked] if len(kinds) == 1 else [each or (None,) * len(kinds) for each in asked]
    columns = [pa.array(each, kind) for each, kind in zip(zip(*parts, strict=True), kinds, strict=True)]
    shifted = [pa.concat_arrays([each[:1], each])[1:] for each in columns]  # with an offset
    for given_columns in (columns, shifted):
        found = lookups.found_columns(table, given_columns)
        if native.new_table is None:
            assert found is None
            continue
        assert found is not None
        place = VALUES.names.index("tags")
        assert [each.type for each in found.columns] == [table.type_of(name) for name in names]
        for each in found.columns:
            each.validate(full=True)
        rows = list(zip(*(each.to_pylist() for each in found.columns), strict=True))
        assert found.is_there.tolist() == [each is not None for each in expected]
        none = (None,) * len(names)
        assert list(map(same, rows)) == [none if e is None else (*e[:place], *e[place + 1 :]) for e in expected]


def test_columns_of_keys_with_other_types_are_left_to_values(tmp_path: Path) -> None:
    ids = pa.array([1, 2, 300], pa.int64())
    build([pa.RecordBatch.from_arrays([ids, pa.array(["a", "b", None])], names=["id", "v"])], Spec(("id",)), tmp_path)
    table = MappedTable(tmp_path)
    for column in (["1"], [1.0], [True]):
        assert lookups.found_columns(table, [pa.array(column)]) is None
    if native.new_table is not None:
        for kind in (pa.int8(), pa.int16(), pa.int64()):  # other widths are the same numbers
            found = lookups.found_columns(table, [pa.array([2, 1, 5, None], kind)])
            assert found is not None
            assert found.columns[0].to_pylist() == ["b", "a", None, None]
        assert lookups.found_columns(table, [pa.array([], pa.int64())]).columns[0].to_pylist() == []  # type: ignore[union-attr]
    assert lookups.found_columns(MappedTable(tmp_path, plain=True), [ids]) is None


@pytest.mark.skipif(native.new_table is None, reason="there is no C extension")
def test_large_batches_of_keys_are_looked_up_in_the_order_of_memory(tmp_path: Path) -> None:
    """Nobody sees it in the result: texts, numbers, booleans and bytes, with nulls and keys that are missing."""
    drawn = np.random.default_rng(5)
    count = 5_000
    ids = [None if number % 97 == 0 else f"k{number}" for number in range(count)]
    texts = [None if number % 7 == 0 else "x" * (number % 11) for number in range(count)]
    flags = [None if number % 5 == 0 else number % 3 == 0 for number in range(count)]
    data = [str(number).encode() for number in range(count)]
    tiers = [(None, "gold", "", "plätinum")[number % 4] for number in range(count)]
    columns = {"id": ids, "n": list(range(count)), "text": texts, "flag": flags, "data": data, "tier": tiers}
    build([pa.RecordBatch.from_pydict(columns)], Spec(("id",)), tmp_path)
    table = MappedTable(tmp_path)
    assert pa.types.is_dictionary(table.schema.field("tier").type)
    asked = [None if number % 50 == 0 else f"k{number}" for number in drawn.integers(0, count + 500, 3_001)]
    found = lookups.found_columns(table, [pa.array(asked).slice(1)])
    assert found is not None
    rows = table.get(asked[1:])
    assert [*zip(*(each.to_pylist() for each in found.columns), strict=True)] == [row or (None,) * 5 for row in rows]
    assert found.is_there.tolist() == [row is not None for row in rows]
    some = lookups.found_columns(table.select(["tier", "n"]), [pa.array(asked)[:100]])
    assert some is not None
    assert some.columns[0].to_pylist() == [row and row[4] for row in table.get(asked[:100])]
    assert some.columns[1].type == pa.int64()


def test_two_builds_of_the_same_rows_have_one_address_and_others_have_another(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    rows = [(each, each) for each in range(100)]
    versions = []
    for number, given_rows in enumerate([rows, rows, [*rows, (100, 100)]]):
        folder = tmp_path / str(number)
        folder.mkdir()
        versions.append(build(batches_of(schema, given_rows), Spec(("id",)), folder, seed=5).version)
    assert versions[0] == versions[1] != versions[2]


@pytest.mark.parametrize(
    ("key", "state"), [(5, NotImplemented), ("a", ("A",)), ("\ud800", None), (b"a", NotImplemented)]
)
def test_a_key_of_another_type_is_told_from_one_that_is_missing(key: Any, state: Any, tmp_path: Path) -> None:
    build([pa.RecordBatch.from_pydict({"id": ["a"], "v": ["A"]})], Spec(("id",)), tmp_path)
    for plain in (False, True):
        table = MappedTable(tmp_path, plain=plain)
        assert table.get([key, "a"]) == [state, ("A",)]
        assert table.get_one(key) == state


@pytest.mark.parametrize("key", [True, 1.0, "1", 1 << 70, -1, -(1 << 70), 1 << 64])
def test_integers_are_only_integers(key: Any, tmp_path: Path) -> None:
    build(
        [pa.RecordBatch.from_pydict({"id": pa.array([1, (1 << 64) - 1], pa.uint64()), "v": [1, 2]})],
        Spec(("id",)),
        tmp_path,
    )
    found = {MappedTable(tmp_path, plain=plain).get_one(key) for plain in (False, True)}
    assert found == {None if type(key) is int else NotImplemented}
    assert {MappedTable(tmp_path, plain=plain).get_one((1 << 64) - 1) for plain in (False, True)} == {(2,)}


def weak(columns: list[pa.Array], seed: int) -> Any:
    """A hash with few values, until its second seed."""
    hashes = hashing.hashes_of(columns, seed)
    return hashes & np.uint64(0x7 << 61) if seed == 3 else hashes


def test_keys_that_collide_get_another_seed(how_built: str, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    rows = [(f"key {each}", each) for each in range(300)]
    made = build(batches_of(schema, rows), Spec(("id",)), tmp_path, seed=3, hash_of=weak)
    assert made.seed != 3
    assert MappedTable(tmp_path).get([key for key, _ in rows]) == [(n,) for _, n in rows]
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith("part-")) == []


LIKE_KEYS: list[tuple[list[pa.DataType], list[tuple[Any, ...]]]] = [
    ([pa.string(), pa.string()], [("x", ""), ("", "x"), ("", "")]),
    ([pa.string(), pa.string()], [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")]),
    ([pa.binary(), pa.binary()], [(b"x", b""), (b"", b"x"), (b"", b""), (b"\0", b""), (b"", b"\0")]),
    ([pa.string()] * 3, [("x", "", ""), ("", "x", ""), ("", "", "x"), ("", "", "")]),
    ([pa.string(), pa.int64(), pa.string()], [("x", 0, ""), ("", 0, "x"), ("", 1, ""), ("", 0, "")]),
    # With the first hash, keys of 7 and of 8 bytes collided with each seed.
    ([pa.binary()], [(b"1234567",), ((0x37363534333231 ^ 0xA23F99D9815A843B).to_bytes(8, "little"),)]),
]


@pytest.mark.parametrize(("kinds", "keys"), LIKE_KEYS)
def test_keys_that_are_alike_do_not_collide(
    kinds: list[pa.DataType], keys: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    names = [f"k{place}" for place in range(len(kinds))]
    schema = pa.schema([*zip(names, kinds, strict=True), ("n", pa.int64())])
    with_null = (*keys[0][:-1], None)
    rows = [(*key, number) for number, key in enumerate([*keys, with_null])]
    made = build(batches_of(schema, rows), Spec(tuple(names)), tmp_path)
    assert (made.seed, made.rows, made.null_keys) == (0, len(keys), 1)
    asked: list[Any] = [key if len(kinds) > 1 else key[0] for key in (*keys, with_null)]
    expected = [*((number,) for number in range(len(keys))), None]
    for plain in (False, True):
        assert MappedTable(tmp_path, plain=plain).get(asked) == expected
    check_columns(MappedTable(tmp_path), kinds, asked, expected)


def test_a_hash_of_another_meaning_has_another_name() -> None:
    """Tables that are on disk are read by these hashes: whoever changes them changes the name, too."""
    columns = [pa.array(["x", ""]), pa.array(["", "123456789"]), pa.array([1, -1], pa.int32())]
    hashes = hashing.hashes_of(columns, 7).tolist()
    assert (hashing.NAME, hashes) == ("rmqio-mix-2", [6528221461908585834, 5112770390092694257])


def test_keys_that_always_collide_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="collide with 4 seeds"):
        build([pa.RecordBatch.from_pydict({"id": [1, 2], "v": [1, 2]})], Spec(("id",)), tmp_path,
              hash_of=lambda columns, _: np.zeros(len(columns[0]), np.uint64))  # fmt: skip


def test_rows_with_a_null_in_their_key_are_counted_and_left_out(tmp_path: Path) -> None:
    made = build(
        [pa.RecordBatch.from_pydict({"a": ["x", None, "y"], "b": [1, 2, None], "v": [1, 2, 3]})],
        Spec(("a", "b")),
        tmp_path,
    )
    assert (made.rows, made.null_keys) == (1, 2)
    assert MappedTable(tmp_path).get([("x", 1), (None, 2), ("y", None)]) == [(1,), None, None]


BAD: list[tuple[dict[str, Any], Spec, str]] = [
    ({"id": [1, 1], "v": [1, 2]}, Spec(("id",)), r"the key id = 1 has several rows: .*first"),
    ({"id": [1], "value": [1]}, Spec(("id",), ("valeu",)), "no column valeu; did you mean value"),
    ({"id": [1.5], "v": [1]}, Spec(("id",)), "id is double, which cannot be a key"),
    ({"id": [1]}, Spec(("id",)), "no columns besides its key"),
    ({"id": [1, 1], "v": [1, 2], "f": [dt.datetime(2024, 1, 1), dt.datetime(2024, 2, 1)], "t": [None, None]},
     Spec(("id",), ("v",), valid_from="f", valid_to="t"), "id = 1 has two rows that are valid at 2024-02-01"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "spec", "message"), BAD)
def test_what_is_no_table_is_an_error(columns: dict[str, Any], spec: Spec, message: str, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=message):
        build([pa.RecordBatch.from_pydict(columns)], spec, tmp_path)


def test_a_row_counts_at_its_time(tmp_path: Path) -> None:
    days = [dt.datetime(2024, month, 1, tzinfo=dt.UTC) for month in (1, 3, 4)]
    rows = {"id": ["a"] * 3, "price": [30, 10, 20], "f": [days[2], None, days[0]], "t": [None, days[0], days[1]]}
    batch = pa.RecordBatch.from_pydict(
        {
            **rows,
            "f": pa.array(rows["f"], pa.timestamp("us", "UTC")),
            "t": pa.array(rows["t"], pa.timestamp("us", "UTC")),
        }
    )
    build([batch], Spec(("id",), ("price",), valid_from="f", valid_to="t"), tmp_path)
    asked = {
        dt.datetime(1900, 1, 1, tzinfo=dt.UTC): 10,
        days[0]: 20,
        days[1]: None,
        days[2]: 30,
        dt.datetime(2100, 1, 1, tzinfo=dt.UTC): 30,
    }
    times = [int(each.timestamp() * 1_000_000) for each in asked]
    for plain in (False, True):
        table = MappedTable(tmp_path, plain=plain)
        assert table.get(["a"] * 5, times) == [None if each is None else (each,) for each in asked.values()]
        assert table.get_one("a", times[1]) == (20,)
        with pytest.raises(ValueError, match="time"):
            table.get_one("a")


@pytest.mark.parametrize("name", ["rows.arrow", "starts.bin", "prints.bin", "manifest.json"])
@pytest.mark.parametrize("harm", ["cut", "changed", "missing", "foreign"])
def test_a_folder_that_is_not_whole_is_refused(name: str, harm: str, tmp_path: Path) -> None:
    build([pa.RecordBatch.from_pydict({"id": list(range(200)), "v": list(range(200))})], Spec(("id",)), tmp_path)
    path = tmp_path / name
    data = path.read_bytes()
    if harm == "cut":
        path.write_bytes(data[:-1])
    elif harm == "changed":
        path.write_bytes(data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :])
    elif harm == "missing":
        path.unlink()
    else:
        fields = json.loads((tmp_path / "manifest.json").read_text())
        (tmp_path / "manifest.json").write_text(json.dumps({**fields, "format": 99}))
    with pytest.raises(BadTable):
        MappedTable(tmp_path)


def test_a_table_with_the_hash_of_an_older_version_is_refused_in_a_line(tmp_path: Path) -> None:
    build([pa.RecordBatch.from_pydict({"id": ["a"], "v": [1]})], Spec(("id",)), tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hash": "rmqio-mix-1"}))
    with pytest.raises(BadTable, match=r"^[^\n]* another version of rmqio: [^\n]*Delete .* load the table again$"):
        MappedTable(tmp_path)


def test_the_hashes_are_the_same_with_and_without_c() -> None:
    if native.hash_column is None:
        pytest.skip("the C extension was not built, or is disabled")
    rng = np.random.default_rng(1)
    texts = pa.array(["x" * int(each) for each in rng.integers(0, 30, 500)])
    columns = [
        texts, texts.slice(3, 400), pa.array(rng.integers(-9, 9, 500), pa.int8()),
        pa.array([True, False] * 50).slice(1),
        pa.array([b"abc", b"abd"], pa.binary(3)), pa.array([dt.date(1969, 1, 1)]), pa.array([1 << 63], pa.uint64()),
        pa.array([decimal.Decimal("-1.5")], pa.decimal128(9, 2)),
    ]  # fmt: skip
    for column in columns:
        plain = np.full(len(column), 7, np.uint64)
        hashing._mix(plain, column)
        native_ = np.full(len(column), 7, np.uint64)
        hashing.mixed(native_, column)
        assert plain.tolist() == native_.tolist()
