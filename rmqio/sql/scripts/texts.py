"""Several texts of one script: a catalog's and a job's, or the statements of a shell.

The spans of a later text begin where the earlier ones end. So a span says which text it is in: the query of a view that
is used in another text is shown where it stands.
"""

from __future__ import annotations

from rmqio.sql.errors import Source, Span, SqlError
from rmqio.sql.syntax import statements
from rmqio.sql.syntax.parser import parse


class Texts:
    """The texts so far."""

    def __init__(self) -> None:
        self._sources: list[tuple[int, Source]] = [(0, Source(""))]
        self._end = 0

    def parse(self, text: str, file: str = "") -> list[statements.Statement]:
        """Adds a text and returns its statements. Raises `SqlError` at the first place that is not valid."""
        statements = parse(text, file)
        begin = self._end
        if begin and statements:
            statements = parse(" " * begin + text, file)
        self._sources.append((begin, Source(text, file)))
        self._end += len(text)
        return statements

    def error(self, message: str, span: Span | None) -> SqlError:
        """Returns an error that shows the line of the span; without one, the name of the newest text's file."""
        if span is None:
            return self._sources[-1][1].error(message, None)
        begin, source = self._of(span)
        if source is not self._sources[-1][1] and not source.file:
            source = Source(source.text, "an earlier statement")
        return source.error(message, Span(span.start - begin, span.end - begin))

    def text_of(self, span: Span) -> str:
        """Returns the piece of text of a span."""
        begin, source = self._of(span)
        return source.text[span.start - begin : span.end - begin]

    def _of(self, span: Span) -> tuple[int, Source]:
        return next(each for each in reversed(self._sources) if each[0] <= span.start)
