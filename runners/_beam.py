"""What the modules of this folder need of what is private of Beam. The two runners have files of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

__all__ = ["beam_runner_api_pb2", "common_urns", "given_flags", "portable_form"]


def portable_form(pipeline: Any) -> Any:
    """Of a pipeline whose code runs in the processes of its runner."""
    return pipeline.to_runner_api(default_environment=EmbeddedPythonEnvironment.default())


def given_flags(options: Any) -> Sequence[str]:
    """The arguments that options were made of."""
    return getattr(options, "_flags", None) or ()
