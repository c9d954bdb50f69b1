"""docs/options.md has a row for every option, and says of each what the classes and the tests of effects say."""

from __future__ import annotations

import ast
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the page has the options of the format rocketmq, which needs the extra 'spark'")

from rmqio.options import ClientOptions, ReadOptions, WriteOptions, option_names
from rmqio.pyspark import options as spark_writes
from rmqio.pyspark import read_options as spark_reads
from rmqio.transforms.reading.options import _OF_CLIENT, _OF_PRODUCER
from tests.helpers.transforms.read_modes import ALL, BOUNDED_ONLY, DIRECT, ENDS, PLANNED, REFUSED, STREAM

PAGE = (Path(__file__).parents[3] / "docs" / "options.md").read_text()
CLASSES = [ReadOptions, WriteOptions, ClientOptions]
UNITS = {"", "ms", "bytes", "messages", "parts", "pulls", "batches", "tries"}


def table(cls: type) -> dict[str, dict[str, str]]:
    """The rows of a class's table by option; cells by column."""
    section = PAGE.partition(f"\n## {cls.__name__}\n")[2].partition("\n## ")[0]
    head, _, *lines = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    return {row["option"].strip("`"): row for row in rows}


@pytest.mark.parametrize("cls", CLASSES)
def test_every_option_has_a_row_in_the_order_of_the_class(cls: type) -> None:
    assert tuple(table(cls)) == option_names(cls)


@pytest.mark.parametrize("cls", CLASSES)
def test_defaults_and_units_are_those_of_the_class(cls: Any) -> None:
    rows = table(cls)
    for field in fields(cls):
        row = rows[field.name]
        told = row["default"].strip("`")
        if field.default is MISSING:
            assert told == "needed"
        elif field.name == "security":
            assert told == "Security()"
        else:
            assert ast.literal_eval(told) == field.default, field.name
        assert row["unit"] in UNITS
        assert (row["unit"] == "ms") is field.name.endswith("_ms"), field.name
        assert (row["unit"] == "bytes") is field.name.endswith("_bytes"), field.name
        assert row["effect"]


def cell(name: str, endless: str | None, ends: str) -> str:
    """Returns the text of a runner's column, by the modes of its endless reads and of those with an end."""
    refused = REFUSED.get(name, ())
    if name in BOUNDED_ONLY and (endless, ends) != (PLANNED, PLANNED):
        return "yes" if (endless, ends) == (None, ENDS) else "bounded only"
    if endless is None or endless in refused:
        return "refused" if ends in refused or endless in refused else "yes"
    return "endless only" if ENDS in refused else "yes"


@pytest.mark.parametrize("name", option_names(ReadOptions))
def test_the_columns_of_runners_are_what_their_modes_do(name: str) -> None:
    row = table(ReadOptions)[name]
    assert row["Direct"] == cell(name, DIRECT, ENDS)
    assert row["Spark"] == cell(name, None, ENDS)
    assert row["Spark `--streaming`"] == cell(name, PLANNED, PLANNED)
    assert row["Flink"] == cell(name, STREAM, ENDS)
    assert row["Read all"] == cell(name, None, ALL)


def test_one_dofn_writes_on_every_runner() -> None:
    for row in table(WriteOptions).values():
        assert {row[runner] for runner in ("Direct", "Spark", "Spark `--streaming`", "Flink")} == {"yes"}


@pytest.mark.parametrize("cls", CLASSES)
def test_options_of_pyspark_exist(cls: type) -> None:
    known = {ReadOptions: spark_reads.READ_NAMES, WriteOptions: spark_writes.WRITE_NAMES}
    names = known.get(cls, (*spark_reads.READ_NAMES, *spark_writes.WRITE_NAMES))
    told = [row["PySpark"].strip("`") for row in table(cls).values() if row["PySpark"] != "-"]
    assert told
    assert [name for name in told if name not in names] == []


@pytest.mark.parametrize("name", option_names(ClientOptions))
def test_how_a_read_and_a_write_say_what_a_client_can_do(name: str) -> None:
    row = table(ClientOptions)[name]
    mine = [f"ReadOptions.{mine}" for mine, theirs in _OF_CLIENT.items() if theirs == name]
    if name in _OF_PRODUCER:
        assert row["on reads"] == "letters"
    else:
        assert re.findall(r"ReadOptions\.\w+", row["on reads"]) == mine
        assert "`client`" in row["on reads"]
    for told in re.findall(r"WriteOptions\.(\w+)", row["on writes"]):
        assert told in option_names(WriteOptions)
