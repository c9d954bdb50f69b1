"""docs/options.md says where an option has no effect, as the tests of effects do; docstrings describe each option."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Final

import pytest

from rmqio.options import ClientOptions, ReadOptions, WriteOptions, option_names
from rmqio.transforms.reading.options import _OF_PRODUCER
from tests.helpers.transforms.read_modes import ALL, BOUNDED_ONLY, DIRECT, ENDS, PLANNED, REFUSED, STREAM

PAGE: Final = (Path(__file__).parents[3] / "docs" / "options.md").read_text()
CLASSES: Final = [ReadOptions, WriteOptions, ClientOptions]
_RENAMED: Final = {
    "name_servers": "name_server",
    "route_refresh_ms": "name_server_poll_interval_ms",
    "heartbeat_ms": "broker_heartbeat_interval_ms",
}
"""Options of a client that a write has by another name."""
_OF_READERS: Final = {"pull_depth", "pull_batch", "long_poll_ms", "outage_timeout_ms", "pull_group", "replica_reads"}
"""Options of a client that a producer does not use."""


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def table() -> dict[str, dict[str, str]]:
    """The rows of the options that not every read takes; cells by column."""
    head, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section("ReadOptions").splitlines()
        if line.startswith("|")
    ]
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    return {row["option"].strip("`"): row for row in rows}


@pytest.mark.parametrize("cls", CLASSES)
def test_every_option_is_described_in_the_reference(cls: type) -> None:
    arguments = (inspect.getdoc(cls) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    named = [each for names in re.findall(r"^  ([\w, ]+):", arguments, re.MULTILINE) for each in names.split(", ")]
    assert sorted(named) == sorted(option_names(cls))


def cell(name: str, endless: str | None, ends: str) -> str:
    """Returns the text of a runner's column, by the modes of its endless reads and of those with an end."""
    refused = REFUSED.get(name, ())
    if name in BOUNDED_ONLY and (endless, ends) != (PLANNED, PLANNED):
        return "yes" if (endless, ends) == (None, ENDS) else "bounded only"
    if endless is None or endless in refused:
        return "refused" if ends in refused or endless in refused else "yes"
    return "endless only" if ENDS in refused else "yes"


def test_the_table_has_the_options_that_not_every_read_takes() -> None:
    assert [*table()] == [name for name in option_names(ReadOptions) if name in REFUSED]


@pytest.mark.parametrize("name", REFUSED)
def test_the_columns_of_runners_are_what_their_modes_do(name: str) -> None:
    row = table()[name]
    assert row["Direct"] == cell(name, DIRECT, ENDS)
    assert row["Spark"] == cell(name, None, ENDS)
    assert row["Spark `--streaming`"] == cell(name, PLANNED, PLANNED)
    assert row["Flink"] == cell(name, STREAM, ENDS)
    assert row["Read all"] == cell(name, None, ALL)


def named_between(start: str, end: str) -> list[str]:
    """Returns the options that the section of the client names in a sentence."""
    (sentence,) = re.findall(f"{start}(.*?){end}", " ".join(section("ClientOptions").split()))
    return re.findall(r"`(\w+)`", sentence)


def test_the_options_that_a_read_has_only_for_its_dead_letters_are_listed() -> None:
    assert sorted(named_between("`dead_letter_topic` uses ", ":")) == sorted(_OF_PRODUCER)


def test_the_options_that_a_write_cannot_set_are_listed() -> None:
    settable = {_RENAMED.get(name, name) for name in option_names(ClientOptions)} & {*option_names(WriteOptions)}
    missing = [
        name
        for name in option_names(ClientOptions)
        if name not in _OF_READERS and _RENAMED.get(name, name) not in settable
    ]
    assert sorted(named_between("a producer uses, except ", ", which")) == sorted(missing)
