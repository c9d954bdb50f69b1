"""Rows that are refused when they are sent: no message can be as large, or a topic that a row names is not there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import apache_beam as beam
from apache_beam.metrics import Metrics

from rmqio.dead_letters.letters import ELEMENT, make_letter
from rmqio.errors import RmqioError
from rmqio.model import Message
from rmqio.transforms import FailedMessage
from rmqio.transforms.parts import failed_of

_BEGINNING: Final = 1 << 16
"""Bytes of a body that is too large: a letter with all of it would be refused, too."""
_OF_SIZE: Final = ("MessageIllegal", "LocalError")
_LOGGER: Final = logging.getLogger(__name__)


class RefusedFn(beam.DoFn):
    """Makes dead letters of refused rows, leaves them out, or fails: no offset of a row that is lost may be committed.

    Args:
      on_error: what the tables say from which the rows come.
      statement: the name of the statement.
    """

    def __init__(self, on_error: str, statement: str) -> None:
        self._on_error = on_error
        self._statement = statement
        self._bad = Metrics.counter("rmqio.sql", "rows_failed")

    def process(self, element: FailedMessage) -> Iterator[FailedMessage | Message]:
        reason = f"cannot write to topic {element.topic!r}: {element.error}: {element.reason} ({self._statement})"
        if self._on_error == "fail":
            raise RmqioError(reason)
        self._bad.inc()
        if self._on_error == "dead-letter":
            yield letter_of(element)
        else:
            _LOGGER.warning("a row is left out: %s", reason)


def letter_of(failed: FailedMessage) -> FailedMessage | Message:
    """Returns what becomes the dead letter of a row. It has the keys, also if it has only the beginning of the body."""
    message = failed.message
    if message is None or failed.error not in _OF_SIZE or len(message.body) <= _BEGINNING:
        return failed
    return make_letter(failed_of(failed)._replace(body=message.body[:_BEGINNING], kind=ELEMENT))
