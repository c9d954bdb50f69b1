"""`replay`: reads dead letters, sends their messages, and commits offsets."""

from __future__ import annotations

import logging
import operator
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rmqio.command_line.output import COLUMNS, cut, with_short_names
from rmqio.dead_letters.letters import DeadLetter, Part, ranges_of, read_letter, read_ranges
from rmqio.errors import CorruptMessage, LocalError
from rmqio.interfaces import ClientFactory, Producer, QueueClient
from rmqio.logs import event
from rmqio.model import Message, MessageQueue, Record, SendResult
from rmqio.options import options_of_cluster
from rmqio.security import Security
from rmqio.sending.accumulator import BatchAccumulator, WritableTopics
from rmqio.sending.batches import BatchSender
from rmqio.start import StartFrom, StopAt
from rmqio.topics import validate_group, validate_topic
from rmqio.wire.batch import MAX_MESSAGE_BYTES, estimated_size

# The result of a replay, by topic and error: as a table, and as JSON.

MOST_PROBLEMS: Final = 20
_REASON: Final = "  first reason: "


@dataclass(slots=True)
class ReplayRow:
    """The letters of one topic and one error."""

    topic: str
    """The topic that they go back to; empty: unknown."""
    error: str
    """The class name of the error."""
    reason: str
    """The reason of the first of them."""
    letters: int = 0
    sent: int = 0
    """Messages that the broker acknowledged. In a dry run: messages that would be sent."""
    duplicates: int = 0
    """Letters of the same failure as an earlier one; not sent again."""
    not_sent: int = 0
    incomplete: int = 0
    """Sent messages whose letter lacks something that the message had, e.g. properties that did not fit."""


@dataclass(slots=True)
class ReplayResult:
    """The result of a replay.

    `problems`: the first letters that were not sent, by their place in the dead-letter topic, and why.
    """

    dead_letter_topic: str
    to: str | None
    """None: each letter is sent to its own topic."""
    is_dry_run: bool
    rows: list[ReplayRow] = field(default_factory=list)
    """One row per topic, in the order of their first letters."""
    read: int = 0
    """Messages read from the dead-letter topic; those that are not chosen are in no row."""
    lost: int = 0
    """Offsets of the dead-letter topic that were deleted by retention, or whose file is gone, before they were read."""
    problems: list[str] = field(default_factory=list)

    @property
    def letters(self) -> int:
        return sum(row.letters for row in self.rows)

    @property
    def sent(self) -> int:
        return sum(row.sent for row in self.rows)

    @property
    def not_sent(self) -> int:
        return sum(row.not_sent for row in self.rows)

    def row_of(self, letter: DeadLetter) -> ReplayRow:
        """The row that counts a letter; created for the first one."""
        return self._row(letter.topic, letter.error, letter.reason)

    def note_problem(self, letter: DeadLetter, why: str) -> None:
        """Record that a letter was not sent."""
        self._note(self.row_of(letter), f"{letter.record.queue}, offset {letter.record.queue_offset}: {why}")

    def note_corrupt(self, error: CorruptMessage) -> None:
        """Record a corrupt letter. Its content is unknown, so it counts as chosen."""
        self.read += 1
        row = self._row("", type(error).__name__, error.reason)
        row.letters += 1
        self._note(row, str(error))

    def _row(self, topic: str, error: str, reason: str) -> ReplayRow:
        for row in self.rows:
            if (row.topic, row.error) == (topic, error):
                return row
        self.rows.append(ReplayRow(topic, error, reason))
        return self.rows[-1]

    def _note(self, row: ReplayRow, problem: str) -> None:
        row.not_sent += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def as_dict(self) -> dict[str, Any]:
        """The whole result and the sums, for JSON."""
        return asdict(self) | {"letters": self.letters, "sent": self.sent, "not_sent": self.not_sent}

    def table(self, columns: int | None = None) -> str:
        """A readable table: a row for each topic and error, with the first reason below it; then what it means.

        `columns`: the width that long names must fit, by leaving out their middle; None: they stay whole.
        """
        sent = "WOULD SEND" if self.is_dry_run else "SENT"
        rows = sorted(self.rows, key=lambda row: (row.topic, -row.letters))
        lines: list[tuple[str, ...]] = [("TOPIC", "ERROR", "LETTERS", sent, "DUPLICATES", "NOT SENT")]
        for row in rows:
            counts = (row.letters, row.sent, row.duplicates, row.not_sent)
            lines.append((row.topic or "?", row.error or "?", *(f"{count:,}" for count in counts)))
        lines = lines if columns is None else list(map(tuple, with_short_names(lines, (0, 1), columns)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = [_aligned(lines[0], widths)] if rows else []
        for row, line in zip(rows, lines[1:], strict=True):
            texts += [_aligned(line, widths), *([_REASON + cut(row.reason, COLUMNS - len(_REASON))] * bool(row.reason))]
        return "\n".join([*texts, *([""] if texts else []), *self._sentences()])

    def _sentences(self) -> list[str]:
        # A broker's remark can have several lines.
        texts = [f"Not sent: {' '.join(problem.split()).rstrip('.')}." for problem in self.problems]
        if len(self.problems) < self.not_sent:
            texts.append(f"Not sent: {_plural(self.not_sent - len(self.problems), 'letter')} more.")
        incomplete = sum(row.incomplete for row in self.rows)
        if incomplete:
            lack = "message lacks" if incomplete == 1 else "messages lack"
            texts.append(f"{incomplete:,} {lack} parts that did not fit into the letter (RMQIO_DROPPED_...).")
        if self.lost:
            were, they = ("was", "it was") if self.lost == 1 else ("were", "they were")
            lost = f"{_plural(self.lost, 'offset')} of topic {self.dead_letter_topic}"
            texts.append(f"Lost: {lost} {were} deleted on the broker before {they} read.")
        where = f"topic {self.to}" if self.to else "the topics that they came from"
        were = "would be" if self.is_dry_run else "was" if self.sent == 1 else "were"
        chosen = f"Read {_plural(self.read, 'letter')} of topic {self.dead_letter_topic} and chose {self.letters:,}."
        return [*texts, f"{chosen} {_plural(self.sent, 'message')} {were} sent to {where}."]


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    cells = (
        text.rjust(width) if column >= 2 else text.ljust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


PRODUCER_GROUP: Final = "rmqio_replay"
_LOGGER: Final = logging.getLogger(__name__)
_queue_offset: Final = operator.attrgetter("queue_offset")

_MAX_BATCH_MESSAGES: Final = 1_000
_MAX_BATCH_BYTES: Final = 256 * 1024
_MAX_TOTAL_BYTES: Final = 64 << 20
_MAX_IN_FLIGHT: Final = 4
_ROUTE_REFRESH_MS: Final = 30_000
_COMMIT_EVERY: Final = 5_000
"""Number of letters after which the replay waits for all sends and commits the group's offsets."""
_NAME_A_TOPIC: Final = "name a topic to send it to, with --to (in Python, to=)"
LARGE_BODY_BYTES: Final = MAX_MESSAGE_BYTES + 1
"""A body that arrived compressed can be larger than brokers accept; compressed again, it may be accepted."""
_MAX_REMEMBERED: Final = 1_000_000
"""Number of letters' ids that are remembered to detect copies; about 150 MB."""

Progress = Callable[[ReplayResult, int], None]
"""Called with the result so far, and the number of messages to read."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The letters to send, and their destination.

    Args:
      to: a topic; None: each letter is sent to where it came from.
      error: searched in `class: reason`.
      source_topics: the topics that letters go back to; empty: all.
      limit: the maximum number of letters, including corrupt ones; None: all.
    """

    dead_letter_topic: str
    to: str | None = None
    error: re.Pattern[str] | None = None
    source_topics: frozenset[str] = frozenset()
    limit: int | None = None

    def __post_init__(self) -> None:
        for topic in (self.dead_letter_topic, self.to, *self.source_topics):
            if topic is not None:
                validate_topic(topic)
        if self.to == self.dead_letter_topic:
            raise LocalError(f"to={self.to!r} is the dead-letter topic itself: name another topic")
        if self.limit is not None and (isinstance(self.limit, bool) or self.limit < 1):
            raise LocalError(f"limit is {self.limit!r}; it must be a whole number of at least 1")

    def takes(self, letter: DeadLetter) -> bool:
        if self.source_topics and letter.topic not in self.source_topics:
            return False
        return self.error is None or self.error.search(f"{letter.error}: {letter.reason}") is not None


def replay(
    dead_letter_topic: str,
    *,
    name_server: str | tuple[str, ...] | list[str] | None = None,
    security: Security | None = None,
    to: str | None = None,
    error: str | re.Pattern[str] | None = None,
    source_topic: str | Sequence[str] = (),
    limit: int | None = None,
    start: StartFrom | None = None,
    stop: StopAt | None = None,
    consumer_group: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    client_factory: ClientFactory | None = None,
) -> ReplayResult:
    """Send the messages of dead letters again, as they were sent the first time, with an id that is always the same.

    Reads what the topic holds at the start. Body, tags, keys, sharding key and the sender's properties are those of the
    message; the letter's properties about the failure are dropped. Several letters of one failure are sent once.

    Args:
      dead_letter_topic: the topic of `dead_letter_topic=` of the transforms, or of `WriteDeadLetters`.
      name_server: `host:port`, several separated by semicolons; None: the environment variable NAMESRV_ADDR.
      security: credentials, TLS, and which addresses may be used.
      to: send all messages to this topic; None: each to the topic it was read from, or could not be written to.
      error: a regular expression that is searched in `class: reason` of each letter; other letters are skipped.
      source_topic: send only letters that go back to these topics.
      limit: the maximum number of letters, including those that are corrupt or cannot be sent.
      start: None: the offsets of `consumer_group`; without a group, the earliest letter.
      stop: None: the current end.
      consumer_group: remembers how far replays have got. Use one group for each choice of letters, because letters that
        are not chosen count as done. Nothing is committed past a letter that could not be sent.
      dry_run: send and commit nothing.
      progress: called periodically with the result so far and the number of messages to read.
      client_factory: another way to create clients, for tests.

    Delivery: at least once. An offset is committed when everything before it has been acknowledged. A replay that
    breaks off can be repeated from there, and messages that it sends again have the same ids: a read with
    `DropDuplicates` drops them.

    Raises `LocalError` if arguments do not fit together, `BrokerError` and `TransportError` after the client's retries.
    A letter that can never be sent (a missing topic, no body) does not raise an error: it is counted as `not_sent`.
    Letters that the broker has lost before they were read are counted as `lost`, and logged.
    """
    if isinstance(source_topic, str):
        source_topic = (source_topic,)
    pattern = re.compile(error) if isinstance(error, str) else error
    choice = Choice(dead_letter_topic, to, pattern, frozenset(source_topic), limit)
    if consumer_group is not None:
        validate_group(consumer_group)
    if start is None:
        start = StartFrom.group_offsets(reset="earliest") if consumer_group else StartFrom.earliest()
    if start.needs_group and consumer_group is None:
        raise LocalError("a start at a group's offsets needs consumer_group=, the group")
    if client_factory is None:
        from rmqio.client.factory import RemotingClientFactory

        client_factory = RemotingClientFactory(
            options_of_cluster(name_server, security, compress_over_bytes=LARGE_BODY_BYTES)
        )
    run = Replay(choice, client_factory, group=None if dry_run else consumer_group, is_dry_run=dry_run)
    run.run(start, stop or StopAt.latest(), consumer_group, progress)
    return run.result


class Replay:
    """One replay. `result` is correct at any time, also after `run` has raised.

    Args:
      group: the group whose offsets are committed.
    """

    def __init__(self, choice: Choice, factory: ClientFactory, *, group: str | None, is_dry_run: bool) -> None:
        self.result = ReplayResult(choice.dead_letter_topic, choice.to, is_dry_run)
        self._choice = choice
        self._factory = factory
        self._group = group
        self._is_dry_run = is_dry_run
        self._seen: dict[tuple[str, str], None] = {}
        self._positions: dict[MessageQueue, int] = {}
        """How far each queue has been processed; committed when all sends are acknowledged."""
        self._held: dict[MessageQueue, int] = {}
        """The first letter of each queue that could not be sent."""
        self._uncommitted = 0
        self._accumulator: BatchAccumulator | None = None

    def run(self, start: StartFrom, stop: StopAt, start_group: str | None, progress: Progress | None) -> None:
        """Run the replay. `start_group`: the group whose offsets `start` uses."""
        client = self._factory.queue_client()
        producer: Producer | None = None
        try:
            ranges = ranges_of(client, self._choice.dead_letter_topic, start, stop, start_group)
            if self._group is not None:
                for queue in ranges:  # the replay starts at a reset; while it pends, a broker ignores commits
                    client.take_reset(self._group, queue)
            total = sum(map(len, ranges.values()))
            if not self._is_dry_run:
                producer = self._factory.producer(PRODUCER_GROUP)
                self._accumulator = self._accumulator_for(producer)
                self._accumulator.begin()
            for part in read_ranges(client, ranges):
                is_enough = self._take_part(part)
                if self._uncommitted >= _COMMIT_EVERY:
                    self._settle(client)
                if progress is not None:
                    progress(self.result, total)
                if is_enough:
                    break
            self._settle(client)
        finally:
            try:
                if producer is not None:
                    producer.close()
            finally:
                client.close()

    def _accumulator_for(self, producer: Producer) -> BatchAccumulator:
        required = frozenset({self._choice.to} if self._choice.to else ())
        topics = WritableTopics(
            producer,
            known_topics=set(),
            required_topics=required,
            refresh_ms=_ROUTE_REFRESH_MS,
            clock=time.monotonic,
        )
        sender = BatchSender(producer, self, max_in_flight=_MAX_IN_FLIGHT, ordered=True, required_topics=required)
        return BatchAccumulator(
            sender,
            topics,
            self,
            max_messages=_MAX_BATCH_MESSAGES,
            max_bytes=_MAX_BATCH_BYTES,
            max_total_bytes=_MAX_TOTAL_BYTES,
        )

    def _take_part(self, part: Part) -> bool:
        """Process a part. Returns whether the limit is reached; the position is then after the last letter taken."""
        letters: list[Record | CorruptMessage] = [*part.records, *part.corrupt]
        if part.corrupt:
            letters.sort(key=_queue_offset)
        position, there = part.begin, 0
        for letter in letters:
            if self._is_enough:
                break
            end = letter.queue_offset + 1
            if isinstance(letter, CorruptMessage):
                end = letter.next_offset or end  # a batch that is stored as one message has several offsets
                self._uncommitted += 1
                self.result.note_corrupt(letter)
            else:
                self._take(read_letter(letter))
            position = max(position, min(end, part.next_offset))
            there += max(0, position - max(letter.queue_offset, part.begin))
        else:
            position = part.next_offset
        self._note_lost(part, position, position - part.begin - there)
        self._positions[part.queue] = position
        return self._is_enough

    @property
    def _is_enough(self) -> bool:
        return self._choice.limit is not None and self.result.letters >= self._choice.limit

    def _note_lost(self, part: Part, position: int, missing: int) -> None:
        """Count lost offsets. `missing`: offsets before the position without a message; some of them are lost."""
        lost = min(part.skipped, missing)
        if lost > 0:
            self.result.lost += lost
            text = "%s: %d offsets before %d are lost on the broker"
            _LOGGER.warning(
                text, part.queue, lost, position, extra=event(queue=part.queue, offset=position, count=lost)
            )

    def _take(self, letter: DeadLetter) -> None:
        self.result.read += 1
        self._uncommitted += 1
        if not self._choice.takes(letter):
            return
        row = self.result.row_of(letter)
        row.letters += 1
        topic = self._choice.to or letter.topic
        if letter.message is None:
            self.result.note_problem(letter, letter.why_not)
        elif not topic:
            self.result.note_problem(letter, f"the letter does not say where its message came from: {_NAME_A_TOPIC}")
        elif topic == self._choice.dead_letter_topic:
            self.result.note_problem(letter, f"the message came from the dead-letter topic itself: {_NAME_A_TOPIC}")
        elif self._is_copy(topic, letter.message_id):
            row.duplicates += 1
        elif self._accumulator is None:
            row.sent += 1
            row.incomplete += not letter.is_whole
        else:
            message = letter.message
            self._accumulator.add(message, topic, letter.message_id, letter, letter, estimated_size(message))

    def _is_copy(self, topic: str, message_id: str) -> bool:
        key = topic, message_id
        if key in self._seen:
            return True
        if len(self._seen) >= _MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = None
        return False

    def _settle(self, client: QueueClient) -> None:
        """Wait until everything in flight is acknowledged, then commit."""
        self._uncommitted = 0
        if self._accumulator is not None:
            self._accumulator.finish()
        if self._group is not None:
            for queue, position in self._positions.items():
                client.commit_offset(self._group, queue, min(position, self._held.get(queue, position)))
        self._positions.clear()

    # ---- rmqio.sending.batches.Outcomes -----------------------------------------------------------------------------

    def sent(
        self, origins: Sequence[Any], messages: Sequence[Message], results: Sequence[SendResult], latency_s: float
    ) -> None:
        """Count a stored batch; `origins` are its letters."""
        for letter in origins:
            row = self.result.row_of(letter)
            row.sent += 1
            row.incomplete += not letter.is_whole

    def failed(self, element: Any, origin: Any, message: Message | None, topic: str | None, error: Exception) -> None:
        """Record that a letter's message can never be sent."""
        record = origin.record
        self._held[record.queue] = min(record.queue_offset, self._held.get(record.queue, record.queue_offset))
        self.result.note_problem(origin, str(error))
