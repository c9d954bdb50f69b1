"""Errors of SQL: each names the place in the text, shows the line with a caret, and says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rmqio.errors import LocalError


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
        """Returns an error that shows the line of the span, with carets under the span."""
        if span is None:
            return SqlError(message, self.file)
        start = min(span.start, len(self.text))
        begin = self.text.rfind("\n", 0, start) + 1
        end = self.text.find("\n", start)
        line = self.text[begin : end if end >= 0 else len(self.text)]
        width = max(1, min(span.end, begin + len(line)) - start)
        # Tabs stay tabs, and wide characters take two columns of a terminal.
        indent = "".join("\t" if each == "\t" else " " * _width(each) for each in line[: start - begin])
        carets = "^" * max(1, sum(map(_width, line[start - begin : start - begin + width])))
        number = self.text.count("\n", 0, start) + 1
        return SqlError(message, self.file, number, start - begin + 1, f"  {line}\n  {indent}{carets}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns `: did you mean 'x'?` for the nearest of the known names, or nothing."""
    by_folded = {each.casefold(): each for each in known}
    if found := difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6):
        return f": did you mean {by_folded[found[0]]!r}?"
    return ""


def listed(names: Iterable[Any], last: str = "or") -> str:
    """Returns `a, b or c`."""
    *first, end = map(str, names)
    return f"{', '.join(first)} {last} {end}" if first else end


def _width(character: str) -> int:
    import unicodedata

    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
