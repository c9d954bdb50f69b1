"""The private parts of Beam that all runners and their options use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

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
    "reads_among",
]


_WORKING: Final = (
    common_urns.primitives.PAR_DO.urn,
    common_urns.sdf_components.PROCESS_SIZED_ELEMENTS_AND_RESTRICTIONS.urn,
)
"""Of leaves that call a DoFn's `process`."""


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


def reads_among(pipeline: Pipeline, leaves: Iterable[beam_runner_api_pb2.PTransform]) -> list[str]:
    """Returns the ids of the reads whose work with finalizers is among these leaves, in Beam's portable form."""
    names = [each.unique_name for each in leaves if _finalizes(each)]
    reads = [node for node in composites(pipeline) if hasattr(node.transform, "read_id")]
    inside = [node for node in reads if any(name.startswith(f"{node.full_label}/") for name in names)]
    return [node.transform.read_id for node in inside]


def _finalizes(leaf: beam_runner_api_pb2.PTransform) -> bool:
    if leaf.spec.urn not in _WORKING:  # what pairs and splits restrictions has the same payload
        return False
    return bool(beam_runner_api_pb2.ParDoPayload.FromString(leaf.spec.payload).requests_finalization)


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
