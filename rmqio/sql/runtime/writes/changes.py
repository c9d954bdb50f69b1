"""Updates of a table: messages of rows that are new or changed, and tombstones of rows that are no longer there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.batches import Batch
from rmqio.model import TOMBSTONE, Message
from rmqio.sql.compile.description import Fragment
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.runtime.rows.failed_rows import FailedRows, at_end

_MESSAGES: Final = 500
"""Messages of a batch for the write."""
_DELETED: Final = {TOMBSTONE: "true"}


def tombstone(message: Message) -> Message:
    """Returns what deletes a row: it goes where the row's own message went."""
    return message.replace(body=b"", properties=_DELETED, delay_level=None, deliver_at_ms=None)


def changes(before: Sequence[Message], after: Sequence[Message]) -> list[Message]:
    """Returns the messages that make the later rows of the earlier ones. The first key of a message is its row's key.

    If several rows have one key, the first one counts.
    """
    old, new = _by_key(before), _by_key(after)
    found = [tombstone(message) for key, message in old.items() if key not in new]
    return found + [message for key, message in new.items() if old.get(key) != message]


def _by_key(messages: Sequence[Message]) -> dict[tuple[str | None, str], Message]:
    return {(each.topic, each.keys[0]): each for each in reversed(messages)}


class ChangesFn(beam.DoFn):
    """Collects messages of a bundle: a batch of one costs as much as one of many. The order of a key's is kept."""

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._failed_rows = FailedRows(fragment)

    def setup(self) -> None:
        self._run = compiled(self._fragment)

    def start_bundle(self) -> None:
        self._messages: list[Message] = []
        self._letters: list[Any] = []
        self._time: Any = MIN_TIMESTAMP

    def finish_bundle(self) -> Iterator[Any]:
        for each in self._letters:
            yield at_end(each, self._time, GlobalWindow())
        if self._messages:
            yield WindowedValue(Batch(self._messages), self._time, (GlobalWindow(),))

    def add(self, messages: Sequence[Message], timestamp: Any) -> list[Any]:
        """Adds messages of an element. Returns a batch if there are enough, and dead letters."""
        self._messages += messages
        self._time = timestamp
        letters, self._letters = self._letters, []
        if len(self._messages) < _MESSAGES:
            return letters
        found, self._messages = self._messages, []
        return [*letters, Batch(found)]

    def messages_of(self, rows: list[tuple[Any, ...]], *, was_there: bool = False) -> list[Message]:
        """Returns the messages of rows, without those of rows that are filtered out, or fail.

        Args:
          was_there: the rows were computed before, so that what failed was said.
        """
        if not rows:
            return []
        mapped = self._run(rows)
        if (mapped.failed or mapped.nulls) and not was_there:
            self._letters += self._failed_rows.outputs(rows, mapped.failed, mapped.nulls)
        return mapped.values
