"""Scripts: statements in order, each valid before the next one is looked at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

from rmqio.sql.analysis import definitions
from rmqio.sql.analysis.definitions import check_scans, check_table
from rmqio.sql.analysis.queries import QueryBinder
from rmqio.sql.analysis.scope import check_names
from rmqio.sql.analysis.sinks import sink_of
from rmqio.sql.catalog.settings import Settings
from rmqio.sql.catalog.tables import Catalog, View
from rmqio.sql.compile.emitter import shortened
from rmqio.sql.errors import Refusal, Source, Span, SqlError
from rmqio.sql.expressions import check_depth
from rmqio.sql.optimizer import optimize
from rmqio.sql.planning.checks import feedback, require_one_writer
from rmqio.sql.planning.plan import Relation, Sink
from rmqio.sql.planning.ranks import check_limits
from rmqio.sql.planning.relations import with_places
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.syntax.nodes import deep_trees
from rmqio.sql.syntax.parser import parse
from rmqio.sql.user import definition
from rmqio.sql.values import in_zone

# Several texts of one script: a catalog's and a job's, or the statements of a shell.
#
# The spans of a later text begin where the earlier ones end. So a span says which text it is in: the query of a view
# that is used in another text is shown where it stands.


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


@contextlib.contextmanager
def _taken_back(made: dict[str, Any], name: str) -> Iterator[None]:
    """Removes what the block has added by this name if it fails: in a shell, the name can be used again."""
    was_there = name in made
    try:
        yield
    except BaseException:
        if not was_there:
            made.pop(name, None)
        raise


@dataclass(slots=True)
class Script:
    """A script: its tables, and the plans of its statements.

    Attributes:
      catalog: tables and views.
      settings: what SET has set.
      sinks: the plan of each INSERT INTO, optimized, in order.
      explained: the plans for EXPLAIN, in order.
      texts: what was run.
      folders: where the modules of functions are looked for, beside Python's path.
    """

    catalog: Catalog = field(default_factory=Catalog)
    settings: Settings = field(default_factory=Settings)
    sinks: list[Sink] = field(default_factory=list)
    explained: list[Relation] = field(default_factory=list)
    texts: Texts = field(default_factory=Texts)
    folders: tuple[str, ...] = ()
    _open_set: Span | None = None
    _checked: dict[int, tuple[View, Relation]] = field(default_factory=dict)
    """Views that were checked: of a chain of views, each would plan all before it."""

    def require_no_feedback(self) -> None:
        """Raises `SqlError` if a statement of the job reads, without an end, what the job writes, and feeds itself."""
        for sink in self.sinks:
            if fault := feedback(sink, self.sinks):
                raise self.texts.error(fault, sink.span)

    def run(self, text: str, file: str = "") -> None:
        """Adds the statements of a text. Raises `SqlError` for the first that is not valid."""
        self._open_set = None
        self.folders = definition.folder_of(file)
        for statement in self.texts.parse(text, file):
            self.run_statement(statement)
        if self._open_set is not None:
            raise self.texts.error("the statement set does not end: END is missing", self._open_set)

    def run_statement(self, statement: statements.Statement) -> None:
        """Adds a statement of one of the texts. Raises `SqlError` if it is not valid."""
        with self.placing(statement):
            self.check_place(statement)
            self._run(statement)

    @contextlib.contextmanager
    def placing(self, statement: statements.Statement) -> Iterator[None]:
        """Raises a `SqlError` for a `Refusal` in the block: it shows the place, or the whole statement."""
        try:
            with deep_trees(), in_zone(self.settings.zone):
                yield
        except RecursionError:
            raise self.texts.error("the statement is nested too deeply", statement.span) from None
        except Refusal as refusal:
            raise self.texts.error(refusal.message, refusal.span or statement.span) from None

    @property
    def is_in_set(self) -> bool:
        """Whether a statement set has begun and not ended."""
        return self._open_set is not None

    def check_place(self, statement: statements.Statement) -> None:
        """Raises `Refusal` if the statement cannot be used there: a statement set holds INSERT INTO only."""
        if self._open_set is None or isinstance(statement, (statements.Insert, statements.EndSet)):
            return
        raise Refusal("a statement set has only INSERT INTO: write END before other statements", statement.span)

    def _run(self, statement: statements.Statement) -> None:
        statement = definitions.resolved(statement, self.catalog.functions)
        if not isinstance(statement, (statements.CreateTable, statements.CreateView, statements.Insert)):
            self._checked.clear()  # what they mean can have changed
        match statement:
            case statements.CreateTable():
                with _taken_back(self.catalog.tables, statement.name.text):
                    self.catalog.create_table(statement)
                    if statement.name.text in self.catalog.tables:  # not so if a view has the name, IF NOT EXISTS
                        check_table(self.catalog.tables[statement.name.text])
            case statements.CreateView():
                with _taken_back(self.catalog.views, statement.name.text):
                    self.catalog.create_view(statement)
                    # Refused here, not where the view is used.
                    found = replace(self.binder(), checked=self._checked).named(statement.name)
                    view = self.catalog.views.get(statement.name.text)
                    if view is not None and view.query is statement.query:  # not an older one, IF NOT EXISTS
                        check_names(statement.name, statement.columns, statement.query, found.fields)
            case statements.Drop():
                self.catalog.drop(statement)
            case statements.SetOption():
                if statement.option is not None:
                    self._set(self.settings.with_option(statement.option), statement.option.span)
            case statements.Reset():
                self._set(self.settings.without(statement.key), statement.span)
            case statements.Insert():
                self.sinks.append(self._insert(statement))
            case statements.BeginSet():
                self._open_set = statement.span
                if statement.first is not None:
                    self.sinks.append(self._insert(statement.first))
            case statements.EndSet():
                if self._open_set is None:
                    raise Refusal("no statement set is open: write BEGIN STATEMENT SET before END", statement.span)
                self._open_set = None
            case statements.Explain():
                inner = statement.statement
                plan = self._insert(inner) if isinstance(inner, statements.Insert) else self.query(inner)
                self.explained.append(plan)
            case statements.QueryStatement():
                how = "INSERT INTO ... SELECT; `rmqio sql -e` and the shell print them"
                raise Refusal(f"a query of a script needs a table for its rows: {how}", statement.span)
            case statements.CreateFunction():
                definitions.create(self.catalog, statement, self.folders or definition.folder_of(""))
            case _:
                works = "in the shell, with `rmqio sql -e` and on its standard input"
                raise Refusal(f"this statement works only {works}, and not in a job", statement.span)

    def _set(self, settings: Settings, span: Span) -> None:
        if settings.zone != self.settings.zone and self.sinks:
            raise Refusal("the time zone applies to the whole job: SET it before the first INSERT INTO", span)
        self.settings = settings

    def binder(self) -> QueryBinder:
        """Returns what gives the names of a query their meaning, with the tables and settings of now."""
        return QueryBinder(self.catalog, self.settings.ttl_ms, self.settings.emit)

    def query(self, query: nodes.Query) -> Relation:
        """Returns the optimized plan of a query. Raises `Refusal`."""
        found = optimize(self.binder().query(definitions.resolved(query, self.catalog.functions)))
        check_depth(found)
        check_limits(found, query.span)
        check_scans(found)
        return with_places(found, self.texts.named)

    def _insert(self, statement: statements.Insert) -> Sink:
        table = self.catalog.table(statement.table)
        found = optimize(sink_of(statement, table, self.binder().query(statement.query)))
        assert isinstance(found, Sink)
        check_depth(found)
        require_one_writer(found, self.sinks, statement.table.span)
        check_limits(found, statement.span)
        check_scans(found)
        found = replace(found, place=self.texts.line_of(statement.span))
        return cast("Sink", with_places(found, self.texts.named))
