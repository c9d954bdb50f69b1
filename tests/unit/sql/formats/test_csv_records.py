"""Records of CSV files: where each one ends, so that its decoder reads what was written."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rmqio.sql.catalog.format_options import FormatOptions
from rmqio.sql.catalog.tables import Table, table_of
from rmqio.sql.formats.delimited import CsvDecoder, CsvEncoder, CsvOptions
from rmqio.sql.lookup.sources import rows_of_file
from rmqio.sql.planning.plan import Field
from rmqio.sql.syntax import statements
from rmqio.sql.syntax.parser import parse

COLUMNS = ("k", "v")


def table(path: Path, more: str = "") -> Table:
    text = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv'{more}"
    (statement,) = parse(f"CREATE TABLE f (k STRING, v STRING) WITH ({text})", "")
    assert isinstance(statement, statements.CreateTable)
    return table_of(statement)


def fields(given: Table) -> tuple[Field, ...]:
    return tuple(Field(each.name, each.type) for each in given.columns)


def read(given: Table, path: Path) -> list[tuple[Any, ...]]:
    options = CsvOptions.of(FormatOptions(given.options.of_format))
    decoder = CsvDecoder(given, fields(given), options)
    return [decoder.exact(line.body) for lines in rows_of_file(given, str(path), COLUMNS) for line in lines]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('a,5" pipe\nb,6" pipe\n', [("a", '5" pipe'), ("b", '6" pipe')]),
        ('5" a,"x\ny"\nb,c\n', [('5" a', "x\ny"), ("b", "c")]),
        ('"x\r\ny",b\r\nc,d\r\n', [("x\r\ny", "b"), ("c", "d")]),
        ('"a","b\n"",""c"\nd,e', [("a", 'b\n","c'), ("d", "e")]),
        ('"",""\n"""",""""""\n', [("", ""), ('"', '""')]),
    ],
)
def test_a_quote_opens_a_field_only_at_its_beginning(tmp_path: Path, text: str, wanted: list[tuple[str, str]]) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(text.encode())
    assert read(table(path), path) == wanted


@pytest.mark.parametrize("before", ["", "# one\n", '# one "\n#\n', "\ufeff# one\r\n"])
@pytest.mark.parametrize(("has_comments", "skips"), [(True, True), (True, False), (False, True)])
def test_comments_before_the_first_line_are_not_that_line(
    tmp_path: Path, before: str, has_comments: bool, skips: bool
) -> None:
    """So it is in Flink, whose parser leaves comments out, and then the first line. Without the option, `#` is text."""
    more = ", 'csv.allow-comments' = 'true'" * has_comments + ", 'csv.ignore-first-line' = 'true'" * skips
    path = tmp_path / "f.csv"
    path.write_bytes(f"{before}k,v\n# two\na,1\n".encode())
    lines = [line.body for lines in rows_of_file(table(path, more), str(path), COLUMNS) for line in lines]
    if has_comments:
        assert lines == [b"k,v"] * (not skips) + [b"a,1"]
    else:
        assert lines == [each.encode() for each in f"{before}k,v\n# two\na,1".replace("\r", "").split("\n")[1:]]


@pytest.mark.parametrize("more", ["", ", 'csv.escape-character' = '\\'", ", 'csv.field-delimiter' = '||'"])
def test_files_have_the_rows_that_were_written(tmp_path: Path, more: str) -> None:
    drawn = random.Random(7)
    path = tmp_path / "f.csv"
    given = table(path, more)
    options = CsvOptions.of(FormatOptions(given.options.of_format))
    encoder = CsvEncoder(fields(given), options)
    body = eval(f"lambda k, v: {encoder.source(COLUMNS)}", dict(encoder.constants))
    signs = ('"', ",", "|", "\\", "\n", "\r", "a", "é", " ")
    rows = [tuple("".join(drawn.choices(signs, k=drawn.randrange(6))) for _ in COLUMNS) for _ in range(2_000)]
    rows = [(f"x{k}", v) for k, v in rows]  # an empty line is not a row
    path.write_bytes(b"\n".join(body(*row) for row in rows))
    assert read(given, path) == rows
