"""Commits of a group's offsets after Spark's own commit, so that RocketMQ's tools show how far a stream is."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Final

from rmqio.errors import CommitIgnored, RmqioError
from rmqio.interfaces import OffsetQuery, QueueClient
from rmqio.model import MessageQueue

_LOGGER = logging.getLogger(__name__)
_WARN_EVERY_S: Final = 60.0


class GroupCommits:
    """The commits of one stream. They only go forward, and fail nothing: the position is in Spark's checkpoint.

    A commit that failed is made up for by the next one, which has newer offsets of the same queues.

    Args:
      group: the consumer group.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._committed: dict[MessageQueue, int] = {}
        self._reached: dict[MessageQueue, int] = {}
        """The stream's own offsets at the last commit. They go back only when a topic is created anew."""
        self._warned_at = float("-inf")

    def commit(self, client: QueueClient, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the offsets at which a stream resumes, as far as they are ahead of the group's."""
        try:
            failed = self._commit(client, offsets)
        except RmqioError as of_all:
            failed = dict.fromkeys(offsets, of_all)
        if failed and time.monotonic() - self._warned_at > _WARN_EVERY_S:
            self._warned_at = time.monotonic()
            queue, error = next(iter(failed.items()))
            _LOGGER.warning(
                "the offsets of %d queues were not committed for group %s; the first is %s: %s",
                len(failed), self._group, queue, error,
            )  # fmt: skip

    def _commit(self, client: QueueClient, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, RmqioError]:
        first = [queue for queue, offset in offsets.items() if offset < self._reached.get(queue, math.inf)]
        failed: dict[MessageQueue, RmqioError] = {}
        found = client.look_up([OffsetQuery(queue, "committed", group=self._group) for queue in first]) if first else ()
        known: dict[MessageQueue, int | None] = dict(self._committed)
        for queue, answer in zip(first, found, strict=True):
            if isinstance(answer, RmqioError):
                failed[queue] = answer
            else:
                known[queue] = answer
        ahead = {
            queue: offset
            for queue, offset in offsets.items()
            if queue not in failed and ((before := known[queue]) is None or offset > before)
        }
        for queue, error in (client.commit_offsets(self._group, ahead) if ahead else {}).items():
            try:
                if not isinstance(error, CommitIgnored):
                    raise error
                reset = client.take_reset(self._group, queue)
                client.commit_offset(self._group, queue, ahead[queue])
                if queue not in first:  # else it is older than this run
                    _LOGGER.warning(
                        "%s: the offset of group %s was reset to %s; the stream continues at %d",
                        queue, self._group, reset, ahead[queue],
                    )  # fmt: skip
            except RmqioError as final:
                failed[queue] = final
        for queue, offset in offsets.items():
            if queue not in failed:
                self._committed[queue] = max(offset, known[queue] or 0)
                self._reached[queue] = offset
        return failed
