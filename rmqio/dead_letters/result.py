"""The result of a replay, by topic and error: as a table, and as JSON."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rmqio.dead_letters.letters import DeadLetter
from rmqio.errors import CorruptMessage

MOST_PROBLEMS: Final = 20
_REASON_WIDTH: Final = 60


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
    """In the order of their first letters."""
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

    def table(self) -> str:
        """A readable table: a line for each topic and error, the sum, and the problems."""
        sent = "would send" if self.is_dry_run else "sent"
        lines: list[tuple[str, ...]] = [("topic", "error", "letters", sent, "duplicates", "not sent", "first reason")]
        for row in sorted(self.rows, key=lambda row: (row.topic, -row.letters)):
            counts = (row.letters, row.sent, row.duplicates, row.not_sent)
            reason = textwrap.shorten(row.reason, _REASON_WIDTH, placeholder=" ...")
            lines.append((row.topic or "?", row.error or "?", *map(str, counts), reason))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = ["  ".join(_cells(line, widths)).rstrip() for line in lines]
        texts += [f"not sent: {problem}" for problem in self.problems]
        if len(self.problems) < self.not_sent:
            texts.append(f"not sent: {self.not_sent - len(self.problems)} more")
        incomplete = sum(row.incomplete for row in self.rows)
        if incomplete:
            texts.append(f"{incomplete} of those lack parts that did not fit into the letter (RMQIO_DROPPED_...)")
        if self.lost:
            texts.append(
                f"lost: {self.lost} offsets of {self.dead_letter_topic}, deleted on the broker before they were read"
            )
        where = self.to or "where they came from"
        done = f"{sent} {self.sent} to {where}" if self.sent or not self.is_dry_run else "sent none"
        return "\n".join([*texts, f"{self.read} read, {self.letters} chosen, {done}"])


def _cells(line: tuple[str, ...], widths: list[int]) -> list[str]:
    return [
        text.rjust(width) if 2 <= column <= 5 else text.ljust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]
