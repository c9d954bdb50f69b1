"""`WriteToFiles` and `ReadFromFiles`: every format there and back, windows, rows that do not fit, files cut off."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from hypothesis import given
from hypothesis import strategies as st

from rmqio.connect import ReadFromFiles, WriteToFiles
from rmqio.connect.files.formats import FileFormat, format_of
from rmqio.errors import LocalError, SerdeError

SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
}
ROWS = [{"id": number, "name": f'Ä"{number},\n', "price": number / 4} for number in range(-3, 40)]


def needed(kind: str) -> str:
    package = {"avro": "fastavro", "parquet": "pyarrow"}.get(kind)
    if package is not None:
        pytest.importorskip(package, reason=f"files of {kind} need {package}")
    return kind


def options(kind: str) -> dict[str, Any]:
    return {"schema": SCHEMA} if kind == "avro" else {}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "avro"])
def test_rows_come_back(kind: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "out")
    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create(ROWS) | WriteToFiles(folder, needed(kind), shards=3, **options(kind))
    names = sorted(each.name for each in Path(folder).iterdir())
    assert names == [f"part-0000{shard}-of-00003.{kind}" for shard in range(3)]
    wanted = [{name: str(value) for name, value in row.items()} for row in ROWS] if kind == "csv" else ROWS

    def check(read: list[Any]) -> None:
        assert Counter(map(repr, read)) == Counter(map(repr, wanted))

    with beam.Pipeline() as pipeline:
        _ = pipeline | ReadFromFiles(f"{folder}/*.{kind}") | beam.combiners.ToList() | beam.Map(check)


def test_each_window_has_its_folder(tmp_path: Path) -> None:
    with beam.Pipeline() as pipeline:
        _ = (
            pipeline
            | beam.Create([{"n": number} for number in range(20)])
            | beam.Map(lambda row: TimestampedValue(row, 1_700_000_000 + row["n"]))
            | beam.WindowInto(FixedWindows(10))
            | WriteToFiles(str(tmp_path), "jsonl")
        )
    found = {
        each.parent.name: len(each.read_text().splitlines()) for each in tmp_path.rglob("part-00000-of-00001.jsonl")
    }
    assert found == {
        "window=20231114T221320Z-20231114T221330Z": 10,
        "window=20231114T221330Z-20231114T221340Z": 10,
    }


def test_a_window_that_is_written_again_replaces_its_file(tmp_path: Path) -> None:
    for rows in ([{"n": 1}], [{"n": 1}, {"n": 2}]):
        with beam.Pipeline() as pipeline:
            _ = pipeline | beam.Create(rows) | WriteToFiles(str(tmp_path), "jsonl")
    assert [each.name for each in tmp_path.iterdir()] == ["part-00000-of-00001.jsonl"]
    assert (tmp_path / "part-00000-of-00001.jsonl").read_text() == '{"n":1}\n{"n":2}\n'


BAD: dict[str, tuple[dict[str, Any], Any, str]] = {
    "jsonl": ({}, {"id": float("nan")}, "Out of range float values"),
    "csv": ({"columns": ["id", "name"]}, {"id": 7, "nmae": "x"}, "the file has no column nmae; did you mean name"),
    "parquet": ({}, {"id": "seven", "name": "x"}, "it does not fit"),
    "avro": ({"schema": SCHEMA}, {"id": "seven", "name": "x", "price": None}, "it does not fit"),
}


@pytest.mark.parametrize("kind", list(BAD))
def test_a_row_that_does_not_fit_goes_out_alone(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    more, bad, reason = BAD[needed(kind)]
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, bad, b"no JSON", {"id": 3, "name": "c"}]
    rows = [{**row, "price": None} if kind == "avro" and isinstance(row, dict) else row for row in rows]

    def check(failures: list[Any]) -> None:
        assert len(failures) == 2
        assert b"no JSON" in {each.body for each in failures}
        assert any(reason in each.reason for each in failures), failures

    with beam.Pipeline() as pipeline:
        result = pipeline | beam.Create([*rows]) | WriteToFiles(str(tmp_path), kind, on_failure="output", **more)
        _ = result.failed | beam.combiners.ToList() | beam.Map(check)
    (path,) = tmp_path.iterdir()
    with path.open("rb") as file:
        assert sorted(int(row["id"]) for row in FileFormat(kind).read(file)) == [1, 2, 3]
    found = sorted(each.getMessage() for each in caplog.records if "refuses" in each.getMessage())
    assert found[0].startswith(f"file {path} refuses 1 row; the first: ")
    assert found[1].startswith(f"folder {tmp_path} refuses 1 row; the first: SerdeError: the body is not JSON")


def test_without_an_output_it_fails_and_leaves_no_file(tmp_path: Path) -> None:
    rows = [{"id": 1}, {"id": 2, "more": 3}]
    with pytest.raises(Exception, match="1 row does not fit; the first, "):
        with beam.Pipeline() as pipeline:
            _ = pipeline | beam.Create(rows) | WriteToFiles(str(tmp_path), "csv", columns=["id"])
    assert list(tmp_path.iterdir()) == []


def test_a_window_of_rows_without_a_time_is_an_error(tmp_path: Path) -> None:
    pipeline = beam.Pipeline()
    rows = pipeline | beam.Create([{"a": 1}]) | beam.WindowInto(FixedWindows(60))
    _ = rows | WriteToFiles(str(tmp_path), "jsonl")
    with pytest.raises(Exception, match="rows without a time are in a window"):
        pipeline.run()


def test_types_that_json_and_csv_lack(tmp_path: Path) -> None:
    row = {"d": Decimal("1.50"), "at": dt.datetime(2024, 1, 2, tzinfo=dt.UTC), "b": b"hi", "l": [1, None], "n": None}
    texts = {}
    for kind in ("jsonl", "csv"):
        file = io.BytesIO()
        assert FileFormat(kind).write([row], file) == []
        texts[kind] = file.getvalue().decode()
    assert json.loads(texts["jsonl"])["at"] == "2024-01-02T00:00:00+00:00"
    assert list(csv.reader(texts["csv"].splitlines()))[1] == [
        "1.50",
        "2024-01-02T00:00:00+00:00",
        "aGk=",
        "[1,null]",
        "",
    ]


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))


@given(st.lists(st.fixed_dictionaries({"a": _TEXT, "b": st.none() | _TEXT}), max_size=6))
def test_any_text_survives_csv_and_lines(rows: list[dict[str, Any]]) -> None:
    for kind in ("csv", "jsonl"):
        file = io.BytesIO()
        assert FileFormat(kind).write(rows, file) == []
        read = list(FileFormat(kind).read(io.BytesIO(file.getvalue())))
        empty = None if kind == "csv" else ""
        assert read == [{name: empty if value == "" else value for name, value in row.items()} for row in rows]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", b'{"a": 1}\nno\n', "x.jsonl: line 2: the body is not JSON"),
        ("x.jsonl", b"[1]\n", "not an object: list"),
        ("x.csv", b"a,b\n1\n", "x.csv: line 2: 1 values for 2 columns"),
        ("x.csv", b'a\n"b', "x.csv: line 2"),
        ("x.csv", b"a\n\xff\n", "x.csv: line 2: not UTF-8 text: invalid start byte"),
        ("x.csv", b"\xff\n", "x.csv: line 1: not UTF-8 text"),
        ("x.csv", b"\xef\xbb\xbfa\n\xc3\xa4\r\nx\xc3\n", "x.csv: line 3: not UTF-8 text: invalid continuation byte"),
        ("x.csv", b"a\n" + b"1234567\n" * 5_000 + b"\xe4\n", "x.csv: line 5002: not UTF-8 text"),
        ("x.csv", b"a\n1\n\xe2\x82", "x.csv: line 3: not UTF-8 text: unexpected end of data"),
        ("x.avro", b"nothing", "it is not an Avro file"),
        ("x.parquet", b"nothing", "x.parquet: "),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    needed(name.removeprefix("x."))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Exception, match=message):
        with beam.Pipeline() as pipeline:
            _ = pipeline | ReadFromFiles(str(tmp_path / name))


def test_parquet_that_was_compressed_as_a_whole_is_read(tmp_path: Path) -> None:
    file = io.BytesIO()
    FileFormat(needed("parquet")).write([{"a": 1}], file)
    (tmp_path / "x.parquet.gz").write_bytes(gzip.compress(file.getvalue()))
    with beam.Pipeline() as pipeline:
        assert_that(pipeline | ReadFromFiles(f"{tmp_path}/x.parquet.gz"), equal_to([{"a": 1}]))


def test_a_file_whose_name_begins_with_a_dot_is_read_only_if_the_pattern_has_the_dot(tmp_path: Path) -> None:
    """Files that are being written, and those of a killed process, have such names: their rows would be there twice."""
    for name in ("part-00000-of-00001.jsonl", f".part-00000-of-00001.jsonl.{'a' * 32}"):
        folder = tmp_path / ".hidden" / name[:5]
        folder.mkdir(parents=True)
        (folder / name).write_text(f'{{"a": "{name[:5]}"}}\n')
    for pattern, wanted in (("*/*", "part-"), ("**", "part-"), ("*/.*", ".part"), ("*/.part*", ".part")):
        with beam.Pipeline() as pipeline:
            rows = pipeline | ReadFromFiles(f"{tmp_path}/.hidden/{pattern}", "jsonl")
            assert_that(rows, equal_to([{"a": wanted}]))
    with pytest.raises(Exception, match=r"no file matches .*; names that begin with a dot do not count"):
        with beam.Pipeline() as pipeline:
            _ = pipeline | ReadFromFiles(f"{tmp_path}/.hidden/.part/*", "jsonl")


def test_no_file_is_an_error_and_a_compressed_one_is_read(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no file matches "):
        with beam.Pipeline() as pipeline:
            _ = pipeline | ReadFromFiles(f"{tmp_path}/*.jsonl")
    with gzip.open(tmp_path / "x.jsonl.gz", "wb") as file:
        file.write(b'{"a": 1}\n')

    def check(read: list[Any]) -> None:
        assert read == [{"a": 1}]

    with beam.Pipeline() as pipeline:
        _ = pipeline | ReadFromFiles(f"{tmp_path}/*.jsonl.gz") | beam.combiners.ToList() | beam.Map(check)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: WriteToFiles("x", "jsnl"), "format is 'jsnl'.*did you mean jsonl"),
        (lambda: WriteToFiles("x", "avro"), "Avro files need a schema"),
        (lambda: WriteToFiles("x", "avro", schema={"type": "recrd"}), "not an Avro schema"),
        (lambda: WriteToFiles("x", "avro", schema="none.avsc"), "the schema none.avsc cannot be read: No such file"),
        (lambda: WriteToFiles("x", "jsonl", columns=["a"]), "columns= works only with csv and parquet"),
        (lambda: WriteToFiles("x", "csv", schema=SCHEMA), "schema= works only with avro and parquet"),
        (lambda: WriteToFiles("x", "csv", shards=0), "shards is 0"),
        (lambda: ReadFromFiles("x.txt"), "the name x.txt does not say the format"),
        (lambda: ReadFromFiles(""), "it must be a path"),
    ],
)
def test_arguments_are_checked_when_it_is_built(build: Any, message: str) -> None:
    needed("avro")
    with pytest.raises(LocalError, match=message):
        build()


@pytest.mark.parametrize(
    ("path", "wanted"), [("a/b.csv.gz", "csv"), ("x.ndjson", "jsonl"), ("x.*.parquet", "parquet"), ("x.json", "jsonl")]
)
def test_the_name_says_the_format(path: str, wanted: str) -> None:
    assert format_of(path) == wanted


def test_an_avro_file_of_no_records_is_an_error() -> None:
    fastavro = pytest.importorskip("fastavro", reason="files of avro need fastavro")
    file = io.BytesIO()
    fastavro.writer(file, "long", [1])
    with pytest.raises(SerdeError, match="contains int instead of records"):
        list(FileFormat("avro").read(io.BytesIO(file.getvalue())))


def written(kind: FileFormat, rows: list[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of the file, and why others were refused."""
    file = io.BytesIO()
    refused = kind.write(rows, file)
    return list(kind.read(io.BytesIO(file.getvalue()))), [str(error) for _, error in refused]


def test_a_cell_of_csv_without_a_text_is_refused_with_its_column() -> None:
    rows = [{"a": 1, "b": bad} for bad in (float("inf"), [float("nan")], object, 2.5)]
    found, refused = written(FileFormat("csv"), rows)
    assert found == [{"a": "1", "b": "2.5"}]
    assert [each.partition(": ")[0] for each in refused] == ["column b"] * 3
    assert all(" has no text in CSV: " in each and "written as JSON" not in each for each in refused)


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ([1, "x"], [2]),
        ("\ud800", "b"),
        (1 << 70, 3),
        ({}, None),
        ([{}], [{"b": 1}]),
    ],
)
def test_a_first_row_without_a_type_of_parquet_is_refused_alone(bad: Any, good: Any) -> None:
    kind = FileFormat(needed("parquet"))
    found, refused = written(kind, [{"id": 1, "a": bad}, {"id": 2, "a": good}, {"id": 3}])
    assert {"id": 2, "a": good} in found
    assert {"id": 3, "a": None} in found
    assert len(found) + len(refused) == 3
    assert all("it does not fit" in each for each in refused)
    assert any(each["id"] == 1 for each in found) or refused


def test_parquet_drops_no_field_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyArrow leaves out what a struct does not have. The schema is that of the first group, if none is given."""
    pa = pytest.importorskip("pyarrow", reason="files of parquet need pyarrow")
    monkeypatch.setattr("rmqio.connect.files.parquet.GROUP_ROWS", 2)
    rows = [{"a": {"b": number}, "l": []} for number in range(3)] + [{"a": {"b": 1, "c": 2}}, {"a": None, "l": ["x"]}]
    found, refused = written(FileFormat("parquet"), rows)
    assert [row["a"] for row in found] == [{"b": 0}, {"b": 1}, {"b": 2}, None]
    assert found[-1]["l"] == ["x"]
    assert refused == ["it does not fit: a has no field c"]
    items = pa.list_(pa.struct([("b", pa.int64())]))
    found, refused = written(
        FileFormat("parquet", None, pa.schema([("a", items)])), [{"a": [{"b": 1}, {"c": 2}]}, {"a": [{"b": 3}, None]}]
    )
    assert (found, refused) == ([{"a": [{"b": 3}, None]}], ["it does not fit: a has no field c"])


def test_parquet_whose_first_group_is_refused_keeps_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.connect.files.parquet.GROUP_ROWS", 1)
    found, refused = written(FileFormat(needed("parquet"), ("a",)), [{"b": 1}, {"a": 2}])
    assert (found, len(refused)) == ([{"a": 2}], 1)


@pytest.mark.parametrize(("field", "value"), [("string", "\ud800"), (None, Decimal("123.4"))])
def test_what_avro_cannot_encode_is_refused_alone(field: Any, value: Any) -> None:
    kind = field or {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    good = "b" if field else Decimal("1.5")
    found, refused = written(FileFormat(needed("avro"), None, schema), [{"a": good}, {"a": value}, {"a": good}])
    assert (found, len(refused)) == ([{"a": good}] * 2, 1)


def test_a_long_value_comes_back_from_csv() -> None:
    assert written(FileFormat("csv"), [{"a": "x" * 200_000}]) == ([{"a": "x" * 200_000}], [])


def test_csv_with_two_columns_of_one_name_is_an_error() -> None:
    with pytest.raises(SerdeError, match="line 1: two columns have the name a"):
        list(FileFormat("csv").read(io.BytesIO(b"a,b,a\n1,2,3\n")))


def test_parquet_with_two_columns_of_one_name_is_an_error() -> None:
    pa = pytest.importorskip("pyarrow", reason="files of parquet need pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), file)
    with pytest.raises(SerdeError, match="two columns have the name a"):
        list(FileFormat("parquet").read(io.BytesIO(file.getvalue())))


def test_columns_and_schema_of_parquet_agree() -> None:
    pa = pytest.importorskip("pyarrow", reason="files of parquet need pyarrow")
    with pytest.raises(LocalError, match="columns names nmae, which the schema does not have; did you mean name"):
        FileFormat("parquet", ("nmae",), pa.schema([("name", pa.string())]))
    with pytest.raises(LocalError, match=r"schema is 'a\.avsc'; that of parquet must be a pyarrow\.Schema"):
        FileFormat("parquet", None, "a.avsc")
