"""The public face: which names there are, and what importing them brings along."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rmqio
from tests.helpers.imports import ROOT


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.strip()


@pytest.mark.parametrize(
    "module",
    [
        "rmqio",
        "rmqio.wire.command",
        "rmqio.testing",
        "rmqio.serde",
        "rmqio.sending.accumulator",
        "rmqio.dead_letters",
        "rmqio.dead_letters.command",
        "rmqio.audit.command",
    ],
)
def test_importing_it_pulls_in_neither_beam_nor_spark(module: str) -> None:
    program = f"import sys, {module}; print(*sorted({{'apache_beam', 'pyspark', 'grpc'}} & set(sys.modules)))"
    assert run(program) == ""


def test_a_light_public_name_does_not_pull_in_beam_and_a_transform_does() -> None:
    assert run("import sys, rmqio; rmqio.Message, rmqio.StartFrom; print('apache_beam' in sys.modules)") == "False"
    assert run("import sys, rmqio; rmqio.ReadFromRocketMQ; print('apache_beam' in sys.modules)") == "True"


FIXED_NAMES = [
    "ReadFromRocketMQ", "ReadAllFromRocketMQ", "WriteToRocketMQ", "WriteToRocketMQResult", "StartFrom", "StopAt",
    "Message", "Record", "MessageQueue", "ReadOptions", "WriteOptions",
]  # fmt: skip


@pytest.mark.parametrize("name", FIXED_NAMES)
def test_a_fixed_name_is_public_and_has_a_docstring(name: str) -> None:
    assert name in rmqio.__all__
    assert getattr(rmqio, name).__doc__


def test_every_public_name_resolves_and_is_listed() -> None:
    for name in rmqio.__all__:
        assert getattr(rmqio, name) is not None
    assert set(rmqio.__all__) <= set(dir(rmqio))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'ReadFromKafka'"):
        rmqio.ReadFromKafka  # noqa: B018


@pytest.mark.parametrize(
    ("cls", "methods"),
    [
        ("StartFrom", "earliest latest timestamp group_offsets specific_offsets"),
        ("StopAt", "latest timestamp offsets"),
    ],
)
def test_strategies_have_their_fixed_names(cls: str, methods: str) -> None:
    assert all(callable(getattr(getattr(rmqio, cls), name)) for name in methods.split())
