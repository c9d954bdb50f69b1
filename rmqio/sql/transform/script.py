"""The text of a `SqlTransform`: statements, and a query at their end."""

from __future__ import annotations

from dataclasses import replace

from rmqio.sql.analysis import definitions
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal, Source, Span, SqlError
from rmqio.sql.planning.plan import Relation
from rmqio.sql.scripts.script import Script
from rmqio.sql.syntax import statements
from rmqio.sql.syntax.parser import parse


class QueryScript(Script):
    """A script that ends with a query. `selected`, `span`: its plan and its place, when it has run."""

    selected: Relation | None = None
    span: Span | None = None

    def _run(self, statement: statements.Statement) -> None:
        if self.selected is not None:
            raise Refusal("nothing can follow the query whose rows are the output", statement.span)
        match statement:
            case statements.QueryStatement():
                resolved = definitions.resolved(statement, self.catalog.functions)
                assert isinstance(resolved, statements.QueryStatement)
                self.selected, self.span = self.query(resolved.query), statement.span
            case statements.Insert():
                raise Refusal(
                    "INSERT INTO returns no rows: end with SELECT, and write its rows with WriteToRocketMQ",
                    statement.span,
                )
            case statements.Explain():
                raise Refusal("EXPLAIN returns no rows: `rmqio sql --explain` shows plans", statement.span)
            case _:
                super()._run(statement)

    def select(self, text: str) -> Relation:
        """Runs the statements. Returns the plan of the query. Raises `SqlError`."""
        self.run(text)
        if self.selected is None:
            raise Source(text).error("the text ends without a query: SELECT ...", None)
        return self.selected

    def error(self, message: str, span: Span | None) -> SqlError:
        """Returns the error of a message at its place, or at the query if the place is not known."""
        return self.texts.error(message, span or self.span)


def declared(text: str, name: str) -> Table:
    """Returns the table of a CREATE TABLE, or of its columns in parentheses. Raises `SqlError`.

    It needs no topic, since its messages come from a PCollection.
    """
    ddl = f"CREATE TABLE `{name}` {text}" if text.lstrip().startswith("(") else text
    found = parse(ddl, f"table {name}")
    if len(found) != 1 or not isinstance(found[0], statements.CreateTable):
        raise SqlError(f"the table {name} needs one CREATE TABLE, or columns in parentheses, not {text!r:.60}")
    statement = found[0]
    statement = replace(statement, name=replace(statement.name, text=name))
    if not any("topic" in option.key.lower() for option in statement.options):
        statement = replace(statement, options=(*statement.options, statements.Option("topic", name)))
    script = Script()
    source = Source(ddl, f"table {name}")
    try:
        script._run(statement)
    except Refusal as refusal:
        raise source.error(refusal.message, refusal.span or statement.span) from None
    return script.catalog.tables[name]
