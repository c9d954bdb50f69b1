"""Conditions alone: what stands after WHERE, parsed, and compiled over columns that the caller names.

Packages that take conditions in SQL, such as the rules, import this module and `rmqio.sql.errors`, and no other of SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.analysis.binder import ExpressionBinder
from rmqio.sql.analysis.scope import Scope
from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import Refusal, Source, Span, SqlError
from rmqio.sql.planning.plan import Field
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.syntax.nodes import deep_trees
from rmqio.sql.syntax.parser import parse
from rmqio.sql.types import SqlType

__all__ = [
    "SqlType",
    "compile_condition",
    "deep_trees",
    "nodes",
    "parse_condition",
    "placed",
    "span_in",
    "type_of",
    "types",
]

_BEFORE: Final = "SELECT 1 FROM t WHERE\n"


def parse_condition(text: str, file: str = "") -> nodes.Expression:
    """Returns the syntax tree of a condition, whose spans are those of the text. Raises `SqlError`."""
    try:
        found = parse(_BEFORE + text, file)
    except SqlError as error:
        raise _in_text(error, file) from None
    statement = found[0] if len(found) == 1 else None
    query: Any = statement.query if isinstance(statement, statements.QueryStatement) else None
    select = query.body if isinstance(query, nodes.Query) else query
    if (
        not isinstance(select, nodes.Select)
        or select.where is None
        or (isinstance(query, nodes.Query) and (query.order_by or query.limit is not None or query.offset))
        or select.group_by or select.having is not None or select.emit
    ):  # fmt: skip
        raise Source(text, file).error("no other clause and no statement can follow a condition", None)
    return select.where


def span_in(node: nodes.Node) -> Span:
    """Returns the span of a part of a parsed condition, in the text of the condition."""
    return Span(node.span.start - len(_BEFORE), node.span.end - len(_BEFORE))


def type_of(node: nodes.Expression, columns: Mapping[str, SqlType]) -> SqlType:
    """Returns the type of an expression over columns. Raises `Refusal`."""
    return _binder(columns).bind(node).type


def compile_condition(
    node: nodes.Expression, columns: Mapping[str, SqlType]
) -> Callable[[Sequence[tuple[Any, ...]]], list[bool | None]]:
    """Returns a function from rows of the columns to what the condition is for each. None: unknown, or it failed.

    Raises `Refusal` if the condition is not valid.
    """
    condition = _binder(columns).condition(node)
    fields = tuple(Field(name, kind) for name, kind in columns.items())
    run = compiled(Fragment(FromRows(fields), (Step(None, (condition,)),), ToRows()))

    def evaluate(rows: Sequence[tuple[Any, ...]]) -> list[bool | None]:
        mapped = run(rows)
        found: list[bool | None] = [None] * len(rows)
        for position, (value,) in zip(mapped.positions, mapped.values, strict=True):
            found[position] = value
        return found

    return evaluate


def placed(refusal: Refusal, text: str, file: str = "") -> SqlError:
    """Returns the error of a part of a parsed condition, with the line and the caret."""
    span, least = refusal.span, len(_BEFORE)
    if span is not None:
        span = Span(max(least, span.start), max(least, span.end))
    return _in_text(Source(_BEFORE + text, file).error(refusal.message, span), file)


def _in_text(error: SqlError, file: str) -> SqlError:
    """Returns an error of the query as that of the condition."""
    if error.line < 2:
        return SqlError(error.message, file)
    return SqlError(error.message, file, error.line - 1, error.column, error.shown)


def _binder(columns: Mapping[str, SqlType]) -> ExpressionBinder:
    fields = [Field(name, kind) for name, kind in columns.items()]
    return ExpressionBinder(Scope.of(fields, "t"), place="in a condition")
