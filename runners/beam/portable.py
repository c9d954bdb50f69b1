"""The private parts of Beam that all runners and their options use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apache_beam.coders.coder_impl import CoderImpl
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import AppliedPTransform, Pipeline, PipelineVisitor
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

__all__ = [
    "AppliedPTransform",
    "CoderImpl",
    "add_arguments",
    "beam_fn_api_pb2",
    "beam_runner_api_pb2",
    "common_urns",
    "composites",
    "given_flags",
    "has_option",
    "pickler",
    "portable_form",
]


def portable_form(pipeline: Any) -> Any:
    """Returns the portable form of a pipeline whose code runs in the processes of its runner."""
    return pipeline.to_runner_api(default_environment=EmbeddedPythonEnvironment.default())


def given_flags(options: Any) -> Sequence[str]:
    """Returns the arguments from which the options were parsed."""
    return getattr(options, "_flags", None) or ()


def has_option(options: Any, name: str) -> bool:
    """Returns whether an option can have a value other than its default. Parses nothing."""
    return name in options._all_options or any(name in flag for flag in given_flags(options))


def add_arguments(kind: type[PipelineOptions], group: Any) -> None:
    """Adds the arguments that a class of options defines to a parser, or to a group of one."""
    kind._add_argparse_args(group)


def composites(pipeline: Pipeline) -> list[AppliedPTransform]:
    """Returns the composite transforms of a pipeline, each before those in it."""
    found = _Composites()
    pipeline.visit(found)
    return found.nodes


class _Composites(PipelineVisitor):
    def __init__(self) -> None:
        self.nodes: list[AppliedPTransform] = []

    def enter_composite_transform(self, transform_node: AppliedPTransform) -> None:
        self.nodes.append(transform_node)
