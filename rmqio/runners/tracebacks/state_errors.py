"""The error of a value that does not fit the coder of its state: names the state, the value and the user's line."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING

from rmqio.errors import RmqioError
from rmqio.runners.beam.portable import beam_runner_api_pb2, pickler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqio.runners.beam.in_process import StateWrite
    from rmqio.runners.beam.portable import CoderImpl, beam_fn_api_pb2

_MOST_CHARACTERS = 80


class StateNotEncodable(RmqioError, TypeError):
    """A state's coder cannot encode a value. Beam encodes state when a bundle ends, far from the line that wrote it."""

    def __init__(self, text: str, transform_id: str, state: str) -> None:
        super().__init__(text)
        self.transform_id = transform_id
        self.state = state


def not_encodable(
    key: beam_fn_api_pb2.StateKey, coder: CoderImpl, elements: Iterable[object], error: Exception
) -> StateNotEncodable:
    """Returns the error for the first of these values that cannot be encoded."""
    kind = getattr(key, key.WhichOneof("type"))
    name = getattr(kind, "user_state_id", "?")
    wrong = next((each for each in elements if not _fits(each, coder)), None)
    shown = f"{wrong!r:.{_MOST_CHARACTERS}} ({type(wrong).__name__})"
    used = type(coder).__name__.removesuffix("Impl")
    return StateNotEncodable(
        f"state {name!r}: its coder {used} cannot encode {shown}: {error}", getattr(kind, "transform_id", ""), name
    )


def in_process(write: StateWrite, error: Exception) -> StateNotEncodable | None:
    """Returns the error for what Beam's in-process runner could not write; None if all of it can be encoded."""
    elements = list(write.elements)
    if all(_fits(each, write.coder) for each in elements):
        return None
    found = declared(write.descriptor, not_encodable(write.key, write.coder, elements, error))
    transform = write.descriptor.transforms.get(found.transform_id)
    where = f" [while running {transform.unique_name!r}]" if transform is not None else ""
    return StateNotEncodable(f"{found}{where}", found.transform_id, found.state)


def declared(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, error: StateNotEncodable) -> StateNotEncodable:
    """Returns the error with the file and the line that declare the state, if their source can be found."""
    transform = descriptor.transforms.get(error.transform_id)
    if transform is None:
        return error
    payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
    try:
        code = pickler.loads(payload.do_fn.payload)[0].process.__code__
    except (AttributeError, IndexError):  # a callable of another kind
        return error
    # Not by `inspect`, which does not find the class of a program that was pickled by value.
    quoted = (f'"{error.state}"', f"'{error.state}'")
    lines = linecache.getlines(code.co_filename)
    line = next((n for n, text in enumerate(lines, 1) if any(each in text for each in quoted)), code.co_firstlineno)
    source = linecache.getline(code.co_filename, line).strip()
    text = f"{error}. The state is declared in {code.co_filename}, line {line}: {source}".removesuffix(": ")
    return StateNotEncodable(text, error.transform_id, error.state)


def _fits(value: object, coder: CoderImpl) -> bool:
    try:
        coder.encode(value)
    except Exception:  # noqa: BLE001 - whatever a coder raises, the value does not fit
        return False
    return True
