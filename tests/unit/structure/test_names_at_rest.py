"""Names in users' programs, brokers, checkpoints and dashboards, which code that moves keeps: `names_at_rest.toml`."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("pyspark", reason="the options of the Spark runner need it")

from rmqio.audit import sketch
from rmqio.cli.main import make_parser
from rmqio.enrich.table import manifest
from rmqio.pyspark.options import WRITE_NAMES
from rmqio.pyspark.read_options import READ_NAMES
from rmqio.runners.spark.streaming import checkpoint
from rmqio.sql.catalog import options, tables
from rmqio.sql.explain import signature
from rmqio.telemetry import METRICS
from rmqio.transforms.reading import restriction
from rmqio.wire import requests

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = ("rmqio", "pipelines", "pyspark_rocketmq")
KEPT: Final = tomllib.loads(Path(__file__).with_name("names_at_rest.toml").read_text("utf-8"))


def _quoted(pattern: str) -> list[str]:
    return sorted(set(re.findall(rf"""["'](?=({pattern})["'])""", _sources())))


@functools.cache
def _sources() -> str:
    return "\n".join(file.read_text("utf-8") for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))


def _commands() -> dict[str, list[str]]:
    """The options of each command of `rmqio`, and the names of what stands without one."""
    found = {}
    left = [make_parser()]
    while left:
        parser = left.pop()
        names: list[str] = []
        for action in parser._actions:
            if hasattr(action, "_name_parser_map"):
                left += dict.fromkeys(action._name_parser_map.values())
            else:
                names += action.option_strings or [str(action.metavar or action.dest)]
        found[parser.prog] = sorted(names)
    return found


FOUND: Final = {
    "properties and environment": _quoted("RMQIO_[A-Z0-9_]+"),
    "urns": _quoted(r"rmqio:[\w:]+:v\d+"),
    "options": _quoted("--[a-z][a-z0-9_-]+"),
    "settings of SQL": _quoted(r"(?:table|pipeline|sql-client|execution)\.[a-z.-]+"),
    "options of tables": sorted({name for names in options._NAMES.values() for name in names}),
    "columns of metadata": sorted({*tables.METADATA, *tables.ALIASES}),
    "options of PySpark": sorted({*READ_NAMES, *WRITE_NAMES}),
    "metrics": sorted(f"{each.name} {each.kind.value}" for each in METRICS.values()),
}
VERSIONS: Final = {
    "a total of the audit topic": sketch.VERSION,
    "a checkpoint of a Spark stream": checkpoint._VERSION,
    "a handle of a delayed message": requests._HANDLE_VERSION,
    "a part of a read": restriction._VERSION,
    "a part of a read that waits": restriction._WAITING_VERSION,
    "a dimension table": manifest.FORMAT,
    "the signature of a SQL job": signature.VERSION,
}


@pytest.mark.parametrize("group", FOUND)
def test_names_are_the_ones_that_were(group: str) -> None:
    assert FOUND[group] == KEPT[group]


def test_commands_have_the_options_that_they_had() -> None:
    assert _commands() == KEPT["commands"]


def test_versions_change_only_with_what_they_are_of() -> None:
    assert KEPT["versions"] == VERSIONS
