"""Several texts of one script: a catalog's and a job's, or the statements of a shell.

The spans of a later text begin where the earlier ones end. So a span says which text it is in: the query of a view that
is used in another text is shown where it stands.
"""

from __future__ import annotations

from rmqio.sql.compile.expressions.places import shortened
from rmqio.sql.errors import Source, Span, SqlError
from rmqio.sql.syntax import statements
from rmqio.sql.syntax.parser import parse


class Texts:
    """The texts so far."""

    def __init__(self) -> None:
        self._sources: list[tuple[int, Source]] = [(0, Source(""))]
        self._newest = self._sources[0][1]
        self._end = 0

    def parse(self, text: str, file: str = "", *, is_made: bool = False) -> list[statements.Statement]:
        """Adds a text and returns its statements. Raises `SqlError` at the first place that is not valid.

        `is_made`: it was made for a statement of the text before, such as the table of a registry that it names.
        """
        begin = self._end
        try:
            statements = parse(" " * begin + text, file)
        except SqlError:
            parse(text, file)  # its error has the line of this text
            raise
        self._sources.append((begin, Source(text, file)))
        if not is_made:
            self._newest = self._sources[-1][1]
        self._end += len(text)
        return statements

    def error(self, message: str, span: Span | None) -> SqlError:
        """Returns an error that shows the line of the span; without one, the name of the newest text's file."""
        if span is None:
            return self._newest.error(message, None)
        begin, source = self._of(span)
        if source is not self._newest and not source.file:
            source = Source(source.text, "an earlier statement")
        return source.error(message, Span(span.start - begin, span.end - begin))

    def text_of(self, span: Span) -> str:
        """Returns the piece of text of a span."""
        begin, source = self._of(span)
        return source.text[span.start - begin : span.end - begin]

    def line_of(self, span: Span) -> str:
        """Returns `line 7` of a span, or `job.sql:7`."""
        error = self.error("", span)
        return f"{error.file}:{error.line}" if error.file else f"line {error.line}"

    def named(self, span: Span) -> str:
        """Returns the line of a span and its text in one line: `job.sql:7: (SELECT ...)`."""
        return f"{self.line_of(span)}: {shortened(' '.join(self.text_of(span).split()))}"

    def _of(self, span: Span) -> tuple[int, Source]:
        return next(each for each in reversed(self._sources) if each[0] <= span.start)
