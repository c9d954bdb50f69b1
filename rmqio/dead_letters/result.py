"""The result of a replay, by topic and error: as a table, and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rmqio.command_line.terminal import COLUMNS, cut, with_short_names
from rmqio.dead_letters.letters import DeadLetter
from rmqio.errors import CorruptMessage

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
