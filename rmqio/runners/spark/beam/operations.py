"""Bases of our operations. They know the order of the arguments that Beam makes operations with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from apache_beam.runners import common
from apache_beam.runners.worker import bundle_processor, operations

if TYPE_CHECKING:
    from apache_beam.utils.counters import CounterFactory

    from rmqio.runners.spark.beam.private import beam_runner_api_pb2

__all__ = ["DoOperation", "Given", "Operation", "by_beam", "create_operation"]


class Given(NamedTuple):
    """The arguments of Beam's DoOperation, in its order."""

    name: common.NameContext
    spec: Any
    counters: CounterFactory
    sampler: Any
    side_inputs: Any
    user_state: Any


class Operation(operations.Operation):
    """An operation of a stage that `factory` makes."""

    def __init__(self, name: str, transform_id: str, factory: bundle_processor.BeamTransformFactory) -> None:
        super().__init__(common.NameContext(name, transform_id), None, factory.counter_factory, factory.state_sampler)


class DoOperation(operations.DoOperation):
    """The operation of a ParDo."""

    def __init__(self, given: Given) -> None:
        super().__init__(*given)
        self.counters, self.sampler = given.counters, given.sampler


def by_beam(given: Given) -> operations.DoOperation:
    """Returns Beam's own operation of a ParDo."""
    return operations.DoOperation(*given)


def create_operation(
    factory: bundle_processor.BeamTransformFactory,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    consumers: dict[str, list[operations.Operation]],
    serialized: bytes,
    payload: beam_runner_api_pb2.ParDoPayload | None,
    operation: Callable[[Given], operations.DoOperation],
) -> operations.DoOperation:
    """Makes the operation of a ParDo with `operation`. `serialized` is its pickled DoFn with arguments."""
    return bundle_processor._create_pardo_operation(
        factory, transform_id, transform, consumers, serialized, payload, lambda *given: operation(Given(*given))
    )
