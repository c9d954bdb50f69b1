"""The list of the names of Beam that the fence exports says all, and nothing that is not used."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.beam import private
from tests.helpers.imports import imports_of, is_in, sources

OF_THE_PROTOCOL = {"beam_fn_api_pb2", "beam_runner_api_pb2", "common_urns", "metrics_pb2"}


def test_only_the_protocol_is_exported_as_modules() -> None:
    """A reader does not see what is used of a module."""
    assert {name for name in private.__all__ if inspect.ismodule(getattr(private, name))} == OF_THE_PROTOCOL


def test_each_exported_name_is_used() -> None:
    used = {
        imported.target.rpartition(".")[2]
        for module, path in sources()
        if is_in(module, "rmqio.runners.spark")
        for imported in imports_of(path.read_text(), module, "")
        if imported.is_of(private.__name__)
    }
    assert used == set(private.__all__)
