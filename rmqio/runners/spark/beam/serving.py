"""Bases of what a bundle processor asks in its own process: a data channel for input and timers, and state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from apache_beam.runners.worker import data_plane, sdk_worker

from rmqio.runners.spark.beam.private import beam_fn_api_pb2

if TYPE_CHECKING:
    from rmqio.runners.spark.beam.private import CoderImpl

__all__ = ["Channel", "Channels", "DueTimers", "Family", "StateHandler"]

Family = tuple[str, str]  # transform id, timer family id


class DueTimers(Protocol):
    """Takes the timers that a bundle writes and returns those that are due: `Timers`, or what a stream keeps by key."""

    def stream(self, family: Family, coder: CoderImpl) -> data_plane.ClosableOutputStream:
        """Returns a stream to which the bundle writes the timers of a family. `coder` decodes them."""
        ...

    def due(self) -> Iterator[tuple[Family, bytes]]:
        """Yields encoded timers that fire now, until none is left. Timers that are set in between are included."""
        ...


class Channel(data_plane.DataChannel):
    """Gives a bundle its input, then the timers that are due."""

    def __init__(self, input_id: str) -> None:
        self._input_id = input_id
        self.input: Iterator[bytes] = iter(())
        self.timers: DueTimers | None = None
        self.timer_coder: Callable[[Family], CoderImpl] | None = None

    def input_elements(
        self,
        instruction_id: str,
        expected_inputs: Collection[str | tuple[str, str]],
        abort_callback: Callable[[], bool] | None = None,
    ) -> Iterator[beam_fn_api_pb2.Elements.Data | beam_fn_api_pb2.Elements.Timers]:
        for chunk in self.input:
            yield beam_fn_api_pb2.Elements.Data(transform_id=self._input_id, data=chunk)
        if self.timers is not None:
            for (transform_id, family), timers in self.timers.due():
                yield beam_fn_api_pb2.Elements.Timers(transform_id=transform_id, timer_family_id=family, timers=timers)

    def output_timer_stream(
        self, instruction_id: str, transform_id: str, timer_family_id: str
    ) -> data_plane.ClosableOutputStream:
        assert self.timers is not None
        assert self.timer_coder is not None
        family = (transform_id, timer_family_id)
        return self.timers.stream(family, self.timer_coder(family))

    def output_stream(self, instruction_id: str, transform_id: str) -> data_plane.ClosableOutputStream:
        raise NotImplementedError(
            f"{transform_id}: Beam asked for an output stream, but elements leave a stage only through the write "
            "operations of worker/shuffling/writing.py. This is a bug in SparkRunner: please report it"
        )

    def close(self) -> None:
        pass


class Channels(data_plane.DataChannelFactory):
    """Returns the only channel of the task.

    Write operations find their writer in `rows`. `fused` counts the fused DoFns.
    """

    def __init__(self, channel: Channel, rows: object) -> None:
        self._channel = channel
        self.rows = rows
        self.fused = 0

    def create_data_channel(
        self, remote_grpc_port: beam_fn_api_pb2.RemoteGrpcPort, data_stream_id: str | None = None
    ) -> Channel:
        return self._channel

    def create_data_channel_from_url(self, url: str, data_stream_id: str | None = None) -> Channel:
        return self._channel

    def close(self) -> None:
        pass


class StateHandler(sdk_worker.CachingStateHandler):
    """Serves state without a cache: it is in this process. Subclasses define `blocking_get`, `extend` and `clear`."""

    def __init__(self) -> None:
        """Beam's own would ask for a handler that has a connection, and for a cache."""

    @contextlib.contextmanager
    def process_instruction_id(self, bundle_id: str, cache_tokens: Iterable[object]) -> Iterator[None]:
        yield

    def done(self) -> None:
        pass
