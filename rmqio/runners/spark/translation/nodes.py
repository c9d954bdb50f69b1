"""The steps of a plan: fused stages, and nodes for what the runner does between stages. Knows nothing about Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqio.runners.spark.model import Output

if TYPE_CHECKING:
    from rmqio.runners.spark.beam.private import beam_runner_api_pb2


@dataclass(slots=True, eq=False)
class Node:
    """A step of the plan. `inputs` and `output` are ids of PCollections."""

    name: str
    inputs: list[str]
    output: str
    payload: bytes = b""


class Impulse(Node):
    """One empty element."""


class Source(Node):
    """In streaming: elements that the driver plans. The payload is the pickled planner."""


class Watermarks(Node):
    """In streaming: receives what a read has learned about event time."""


class Flatten(Node):
    """The union of its inputs."""


class Empty(Node):
    """No elements: a Flatten without inputs."""


class Redistribute(Node):
    """The same elements, spread over all partitions."""


class GroupByKey(Node):
    """Groups in its neighbours: the stages before it write runs, and the stages after it read groups."""


@dataclass(slots=True, eq=False)
class Stage:
    """A fused stage with its input. Its readers determine what it writes, and in which forms."""

    name: str
    transforms: list[beam_runner_api_pb2.PTransform]
    input: str
    outputs: list[str]
    side_inputs: list[tuple[str, str, str, bool]]  # transform id, tag, PCollection, multimap
    stateful: bool
    finalizes: bool
    writes: list[Output] = field(default_factory=list)
    readers: int = 0
