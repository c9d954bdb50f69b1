"""Failures of elements that a sink refuses: the whole element, where it comes from, and the warning in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from typing import Any, Final

from rmqio.connect.rows import to_json
from rmqio.connect.sink.base import RowRefused
from rmqio.connect.sink.outage import EVERY_S
from rmqio.errors import SerdeError, counted
from rmqio.logs import event
from rmqio.model import Message, MessageQueue, Record
from rmqio.serde.strict_json import JsonEncoder
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import failure_of_record, failure_of_value

_LOGGER = logging.getLogger("rmqio.connect")


class Refusals:
    """The warnings of one writer: for each destination one at once, and at most one more each 30 s.

    `clock` is for tests.
    """

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._told: dict[Hashable, tuple[float, int]] = {}
        """By destination, when it was told, and how many rows were refused since."""

    def warn(self, destination: Hashable, count: int, first: Exception) -> None:
        """Logs how many rows go to the failures, with those that were not told."""
        now = self._clock()
        told, more = self._told.get(destination, (now - EVERY_S, 0))
        if now - told < EVERY_S:
            self._told[destination] = told, more + count
            return
        if len(self._told) > 1_000:
            self._told.clear()
        self._told[destination] = now, 0
        warn_refused(self._name, destination, more + count, first)


def warn_refused(name: str, destination: Hashable, count: int, first: Exception) -> None:
    """Logs how many rows go to the failures. None: rows without a destination, or a sink that has only one."""
    where = "" if destination is None else f" for {destination}"
    text = "%s refuses %s%s; the first: %s: %s"
    _LOGGER.warning(text, name, counted(count, "row"), where, type(first).__name__, first, extra=event(count=count))


def refusal(name: str, count: int, first: ReadFailure, error: Exception, advice: str) -> str:
    """Returns the text of an error for rows that a sink refuses, with the place of the first one if it is known."""
    text = f"{error}" if isinstance(error, RowRefused) else f"{type(error).__name__}: {error}"
    text = text.removeprefix(f"{name}: ")
    where = f" ({first.topic}/{first.broker}/{first.queue_id}, offset {first.queue_offset})" if first.topic else ""
    return f"{name} refuses {counted(count, 'row')}; the first{where}: {text}; to continue without such rows, {advice}"


def failure_of(value: Any, place: tuple[MessageQueue, int] | None, error: Exception) -> ReadFailure:
    """Returns the failure of an element, or of a value of a batch, whose place may be known."""
    if isinstance(value, Record):
        return failure_of_record(value, error)
    if (own := getattr(value, "to_failure", None)) is not None:
        found: ReadFailure = own(error)
        return found
    queue, offset = place or (None, -1)
    failure = failure_of_value(value, queue, offset, error)
    if isinstance(value, Message):
        return failure._replace(
            body=value.body,
            keys=" ".join(value.keys),
            tags=value.tags or "",
            sharding_key=value.sharding_key or "",
            properties=tuple(sorted(value.properties.items())),
        )
    return failure._replace(body=_whole(value) or failure.body)


def _whole(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace")
    try:
        return to_json(value).encode("utf-8", "backslashreplace")
    except SerdeError:
        # A value that has no JSON, such as NaN: as much of it as Python can write.
        return _AS_POSSIBLE.encode(value).encode("utf-8", "backslashreplace")


_AS_POSSIBLE: Final = JsonEncoder(default=repr, allow_nan=True, skipkeys=True)
