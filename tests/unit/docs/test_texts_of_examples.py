"""The programs of `examples/` document themselves: their texts, without running them."""

from __future__ import annotations

import ast
import importlib
import itertools
import re

import pytest

from tests.examples.programs import FOLDER, PROGRAMS, Program

PUBLIC = {
    "rmqio",
    "rmqio.audit",
    "rmqio.replay",
    "rmqio.runners",
    "rmqio.serde",
    "rmqio.serde.avro",
    "rmqio.enrich",
    "rmqio.rules",
    "rmqio.skew",
    "rmqio.sql",
}

each_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@each_program
def test_it_is_short(program: Program) -> None:
    assert 20 <= len(program.source.splitlines()) <= 50


@each_program
def test_its_text_starts_a_broker_with_its_topics_and_then_the_program(program: Program) -> None:
    broker, command = program.commands
    assert broker[:4] == ["rmqio", "local", "--port", "9876"]
    started = {topic.partition(":")[0] for name, topic in itertools.pairwise(broker) if name == "--topic"}
    assert set(program.topics.values()) <= started
    assert f"examples/{program.path.name}" in command
    assert "--name_server=127.0.0.1:9876" in command


@each_program
def test_it_imports_public_names_only(program: Program) -> None:
    if program.path.suffix == ".sh":
        return
    pytest.importorskip("fastavro", reason="rmqio.serde.avro needs the extra 'avro'")
    for node in ast.walk(ast.parse(program.source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rmqio"):
            assert node.module in PUBLIC
            assert {alias.name for alias in node.names} <= set(importlib.import_module(node.module).__all__)


def test_the_table_of_the_folder_has_a_row_for_each_program() -> None:
    rows = re.findall(r"(?m)^\|[^|]+\| \[(\S+)\]\((\S+)\) \| `([^`]+)`", (FOLDER / "README.md").read_text())
    assert [name for name, *_ in rows] == [link for _, link, _ in rows]
    assert sorted(name for name, *_ in rows) == sorted(PROGRAMS)
    for name, _, command in rows:
        told = [word for word in PROGRAMS[name].commands[1] if not word.startswith("--name_server")]
        assert command.split() == told
