"""`WriteDeadLetters`: what failed, to a topic, so that `rmqio.replay` can send it back."""

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
"""A body that came compressed may be larger than what is taken; compressed again it may pass."""


class WriteDeadLetters(beam.PTransform):
    """Writes each failure as one dead letter: the raw body, coordinates and error as properties.

    Elements are `ReadFailure`, `FailedMessage`, or a `Message` that is a letter already. So it is what Beam's
    `ErrorHandler` may be given; `dead_letter_topic=` of the other transforms is short for it:

        with ErrorHandler(WriteDeadLetters("dead", name_server=...)) as errors:
            records = pipeline | ReadFromRocketMQ(...).with_error_handler(errors)

    Args:
      topic: must exist.
      name_server, security, options, client_factory: as `WriteToRocketMQ`.

    Returns: PCollection of `SendResult`.

    Delivery: at least once. The id of a letter follows from where it comes from, so that copies can be recognised. A
    `FailedMessage` does not say that: there it follows from the message and the error's class, and two equal messages
    are two letters with one id. `dead_letter_topic=` of the write knows the element, too. A letter that cannot be
    written (a body of more than 4 MiB that does not shrink) raises `SerdeError`, which fails the bundle: it would be
    the last copy of a message that the group is committed past.
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
        "it holds a message that failed, so the pipeline stops before that is lost"
    )


def _compressing(factory: ClientFactory | None) -> ClientFactory | None:
    """A factory of ours with the option to compress; another one as it is."""
    from rmqio.client.factory import RemotingClientFactory

    if isinstance(factory, RemotingClientFactory) and factory.options.compress_over_bytes is None:
        return RemotingClientFactory(dataclasses.replace(factory.options, compress_over_bytes=_COMPRESS_OVER_BYTES))
    return factory
