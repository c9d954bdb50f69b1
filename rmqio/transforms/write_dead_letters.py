"""`WriteDeadLetters`: writes failures to a topic, so that `rmqio.replay` can send them back."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import apache_beam as beam

from rmqio.dead_letters.letters import letter_id
from rmqio.errors import SerdeError
from rmqio.interfaces import ClientFactory
from rmqio.model import Message
from rmqio.options import WriteOptions
from rmqio.security import Security
from rmqio.transforms.read_failures import dead_letter
from rmqio.transforms.write import WriteToRocketMQ
from rmqio.wire.batch import MAX_MESSAGE_BYTES

_COMPRESS_OVER_BYTES: Final = MAX_MESSAGE_BYTES + 1
"""A body that arrived compressed can be larger than brokers accept; compressed again, it may be accepted."""


class WriteDeadLetters(beam.PTransform):
    """Writes each failure as one dead letter: the raw body, with coordinates and error as properties.

    Elements are `ReadFailure`, `FailedMessage`, or a `Message` that is already a letter. The transform can be given to
    Beam's `ErrorHandler`; `dead_letter_topic=` of the other transforms is short for this:

        with ErrorHandler(WriteDeadLetters("dead", name_server=...)) as errors:
            records = pipeline | ReadFromRocketMQ(...).with_error_handler(errors)

    Args:
      topic: a topic that exists.
      name_server, security, options, client_factory: as in `WriteToRocketMQ`.

    Returns: a PCollection of `SendResult`.

    Delivery: at least once. The id of a letter is derived from its origin, so that copies can be recognised. A
    `FailedMessage` has no origin, so its id is derived from the message and the error's class: two equal messages are
    two letters with one id. `dead_letter_topic=` of the write also knows the element. A letter that cannot be written
    (a body of more than 4 MiB that compression does not reduce) raises `SerdeError`, which fails the bundle: the
    group's offset is committed past the message, so the letter would be its last copy.
    """

    def __init__(
        self,
        topic: str,
        *,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        options: WriteOptions | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__()
        options = options or WriteOptions()
        if client_factory is None and options.compress_over_bytes is None:
            options = dataclasses.replace(options, compress_over_bytes=_COMPRESS_OVER_BYTES)
        self._write = WriteToRocketMQ(
            topic,
            name_server=name_server,
            security=security,
            options=options,
            id_fn=letter_id,
            client_factory=_compressing(client_factory),
        )

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


def _compressing(factory: ClientFactory | None) -> ClientFactory | None:
    """Our own factory with compression turned on; a user's factory unchanged."""
    from rmqio.client.factory import RemotingClientFactory

    if isinstance(factory, RemotingClientFactory) and factory.options.compress_over_bytes is None:
        return RemotingClientFactory(dataclasses.replace(factory.options, compress_over_bytes=_COMPRESS_OVER_BYTES))
    return factory
