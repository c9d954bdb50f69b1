"""Serves state to Beam's bundle processor in the same process: user state, side inputs and spooled groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from rmqio.runners.spark.beam.private import (
    CoderImpl,
    StateServicer,
    beam_fn_api_pb2,
    create_InputStream,
    create_OutputStream,
)
from rmqio.runners.spark.beam.serving import StateHandler
from rmqio.runners.spark.worker.side_inputs import SideInputs
from rmqio.runners.spark.worker.spool import Spool
from rmqio.runners.tracebacks.state_errors import not_encodable

_SIDE_INPUTS = frozenset(
    {
        "iterable_side_input",
        "multimap_side_input",
        "multimap_keys_side_input",
        "multimap_keys_values_side_input",
    }
)


class UserState(Protocol):
    """Stores user state by state key: Beam's in-memory servicer, or what a stream keeps by key."""

    def get_raw(self, state_key: beam_fn_api_pb2.StateKey) -> tuple[bytes, object]: ...

    def append_raw(self, state_key: beam_fn_api_pb2.StateKey, data: bytes) -> object: ...

    def clear(self, state_key: beam_fn_api_pb2.StateKey) -> object: ...


class TaskState(StateHandler):
    """Serves the state requests of one task.

    User state lives as long as the keys of one bundle: all elements of a key are in one bundle, and its timers fire
    there. Beam's own in-memory servicer keeps user state, so every kind of state that Beam knows is served.
    """

    def __init__(self, side_inputs: SideInputs, spool: Spool) -> None:
        super().__init__()
        self._side_inputs = side_inputs
        self._spool = spool
        self._user: UserState = StateServicer()

    def serve(self, user: UserState) -> None:
        """Reads and writes user state in `user` from now on: see `streaming.state.user_state`."""
        self._user = user

    def forget_keys(self) -> None:
        """Drops all user state, because the keys of the bundle will not come again."""
        self._user = StateServicer()

    def blocking_get(self, state_key: beam_fn_api_pb2.StateKey, coder: CoderImpl) -> Iterator[object]:
        kind = state_key.WhichOneof("type")
        if kind == "runner":
            return self._spool.read(state_key.runner.key, coder)
        if kind in _SIDE_INPUTS:
            return self._side_inputs.get(kind, getattr(state_key, kind))
        data, _ = self._user.get_raw(state_key)
        return _decoded(data, coder)

    def extend(self, state_key: beam_fn_api_pb2.StateKey, coder: CoderImpl, elements: Iterable[object]) -> object:
        out = create_OutputStream()
        given = list(elements)
        try:
            for element in given:
                coder.encode_to_stream(element, out, True)
        except Exception as error:  # noqa: BLE001 - whatever a coder raises
            raise not_encodable(state_key, coder, given, error) from None
        return self._user.append_raw(state_key, out.get())

    def clear(self, state_key: beam_fn_api_pb2.StateKey) -> object:
        return self._user.clear(state_key)


def _decoded(data: bytes, coder: CoderImpl) -> Iterator[object]:
    stream = create_InputStream(data)
    while stream.size() > 0:
        yield coder.decode_from_stream(stream, True)
