"""Errors of SQL: each names the place in the text, shows the line with a caret, and says what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from rmqio import hints
from rmqio.errors import LocalError
from rmqio.hints import line_with_carets
from rmqio.sql.secrets import masked_line, masked_message

_LONG_WORD: Final = re.compile(r"(\S{100})\S{100,}")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a script's text, by offsets of characters: [start, end)."""

    start: int
    end: int


class SqlError(LocalError):
    """A statement that is not valid. Its text has the file, the line, the column and the line with a caret.

    Attributes:
      message: what is wrong, in one line.
      file, line, column: where; lines and columns count from 1; line 0: the place is unknown.
    """

    def __init__(self, message: str, file: str = "", line: int = 0, column: int = 0, shown: str = "") -> None:
        message = masked_message(message)
        super().__init__(message, file, line, column, shown)
        self.message, self.file, self.line, self.column, self.shown = message, file, line, column, shown

    def __str__(self) -> str:
        if not self.line:
            return self.message
        place = f"{self.file or 'line'}:{self.line}:{self.column}" if self.file else f"line {self.line}:{self.column}"
        return f"{place}: {self.message}\n{self.shown}"


class Refusal(Exception):
    """A `SqlError` whose text is not known yet: raised with the span of what is wrong, and placed by `Source`."""

    def __init__(self, message: str, span: Span | None) -> None:
        super().__init__(message)
        self.message, self.span = message, span


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a script, and the name under which errors show it."""

    text: str
    file: str = ""

    def error(self, message: str, span: Span | None) -> SqlError:
        """Returns an error that shows the line of the span, with carets under the span, and `***` for passwords."""
        message = _LONG_WORD.sub(r"\1...", message)
        if span is None:
            return SqlError(message, self.file)
        start = min(span.start, len(self.text))
        begin = self.text.rfind("\n", 0, start) + 1
        end = self.text.find("\n", start)
        end = end if end >= 0 else len(self.text)
        line, first, last = masked_line(self.text, begin, end, start, max(start, span.end))
        number = self.text.count("\n", 0, start) + 1
        column = start - begin + 1
        return SqlError(message, self.file, number, column, line_with_carets(line.rstrip("\r"), first, last - first))

    def shown(self, span: Span) -> str:
        """Returns the text of a span for a message, with `***` for passwords."""
        return masked_line(self.text, span.start, span.end, 0, 0)[0]


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns `: did you mean 'x'?` for the nearest of the known names, or nothing."""
    by_folded = {each.casefold(): each for each in known}
    found = hints.nearest(name.casefold(), by_folded)
    return f": did you mean {by_folded[found]!r}?" if found else ""


def listed(names: Iterable[Any], last: str = "or") -> str:
    """Returns `a, b or c`."""
    *first, end = map(str, names)
    return f"{', '.join(first)} {last} {end}" if first else end
