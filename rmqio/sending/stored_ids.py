"""The unique ids of the messages stored in ranges of queues."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping

from rmqio.errors import OffsetOutOfRange, RequestTimeout
from rmqio.interfaces import QueueClient
from rmqio.model import MessageFilter, MessageQueue

_LOGGER = logging.getLogger(__name__)
_ALL = MessageFilter()


def stored_ids(
    client: QueueClient,
    ranges: Mapping[MessageQueue, tuple[int, int]],
    *,
    silence_s: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[MessageQueue, list[tuple[int, str]]]]:
    """Yield the offset and id of each message in [begin, end) of each queue, as they are read; in order per queue.

    Messages deleted by retention are skipped with a warning, and so are messages that do not decode. Raises
    `RequestTimeout` when no queue returns anything for `silence_s`, and the errors of a reader.
    """
    readers = {
        client.open_reader(queue, begin, message_filter=_ALL): end
        for queue, (begin, end) in ranges.items()
        if begin < end
    }
    heard = clock()
    try:
        while readers:
            client.wait(readers, 1_000)
            for reader in [*readers]:
                end = readers[reader]
                try:
                    fetched = reader.poll()
                except OffsetOutOfRange as error:
                    if error.wanted < error.minimum:
                        text = "%s: %d messages from offset %d on were deleted and cannot be looked up"
                        _LOGGER.warning(text, reader.queue, min(error.minimum, end) - error.wanted, error.wanted)
                    reader.seek(min(max(error.minimum, 0), end) if error.wanted < error.minimum else end)
                    fetched = None
                if fetched is not None:
                    heard = clock()
                    yield (
                        reader.queue,
                        [
                            (record.queue_offset, record.message_id)
                            for record in fetched.records
                            if record.queue_offset < end
                        ],
                    )
                if reader.position >= end:
                    reader.close()
                    del readers[reader]
            if clock() - heard > silence_s:
                behind = ", ".join(str(reader.queue) for reader in readers)
                raise RequestTimeout(f"looking up messages: received nothing for {silence_s:.0f} s from {behind}")
    finally:
        for reader in readers:
            reader.close()
