"""`WriteDeadLetters`: writes failures to a topic, so that `rmqio.replay` can send them back."""

from __future__ import annotations

import dataclasses

from rmqio.dead_letters.letters import letter_id
from rmqio.interfaces import ClientFactory
from rmqio.options import WriteOptions
from rmqio.security import Security
from rmqio.transforms.write import WriteToRocketMQ
from rmqio.transforms.writing.letters import COMPRESS_OVER_BYTES, WriteLetters, compressing


class WriteDeadLetters(WriteLetters):
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
        options = options or WriteOptions()
        if client_factory is None and options.compress_over_bytes is None:
            options = dataclasses.replace(options, compress_over_bytes=COMPRESS_OVER_BYTES)
        write = WriteToRocketMQ(
            topic,
            name_server=name_server,
            security=security,
            options=options,
            id_fn=letter_id,
            client_factory=compressing(client_factory),
        )
        super().__init__(write)
