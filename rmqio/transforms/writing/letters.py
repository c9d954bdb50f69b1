"""How dead letters are written, whichever transform they come from."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import apache_beam as beam

from rmqio.errors import SerdeError
from rmqio.interfaces import ClientFactory
from rmqio.model import Message
from rmqio.transforms.failures.read_failures import dead_letter
from rmqio.wire.batch import MAX_MESSAGE_BYTES

COMPRESS_OVER_BYTES: Final = MAX_MESSAGE_BYTES + 1
"""A body that arrived compressed can be larger than brokers accept; compressed again, it may be accepted."""


class WriteLetters(beam.PTransform):
    """Writes each failure as one dead letter. A letter that cannot be written raises `SerdeError`.

    Args:
      write: the `WriteToRocketMQ` for messages that are letters.
    """

    def __init__(self, write: Any) -> None:
        super().__init__()
        self._write = write

    def expand(self, failures: Any) -> Any:
        letters = failures | "To letters" >> beam.Map(_as_letter).with_output_types(Message)
        written = letters | "Write" >> self._write
        _ = written.failed | "Lose none" >> beam.Map(_refuse)
        return written.sent


def _as_letter(failure: Any) -> Message:
    return failure if isinstance(failure, Message) else dead_letter(failure)


def _refuse(failed: Any) -> None:
    raise SerdeError(
        f"a dead letter cannot be written to topic {failed.topic!r}: {failed.error}: {failed.reason}; "
        "it contains a message that failed, so the pipeline stops before that message is lost"
    )


def compressing(factory: ClientFactory | None) -> ClientFactory | None:
    """Our own factory with compression turned on; a user's factory unchanged."""
    from rmqio.client.factory import RemotingClientFactory

    if isinstance(factory, RemotingClientFactory) and factory.options.compress_over_bytes is None:
        return RemotingClientFactory(dataclasses.replace(factory.options, compress_over_bytes=COMPRESS_OVER_BYTES))
    return factory
