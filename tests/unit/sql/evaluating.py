"""Evaluates an expression of SQL on the way that a query takes: parsed, bound, compiled, run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from rmqio.sql import types
from rmqio.sql.analysis.binder import ExpressionBinder
from rmqio.sql.analysis.scope import Scope
from rmqio.sql.compile.description import Fragment, FromRows, Step, ToRows
from rmqio.sql.compile.fragment import compiled
from rmqio.sql.errors import Refusal, Source
from rmqio.sql.expressions import Expr
from rmqio.sql.planning.plan import Field
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.syntax.parser import parse
from rmqio.sql.types import SqlType

Row = Mapping[str, tuple[str, Any]]


def _query(text: str) -> nodes.Select:
    (statement,) = parse(text)
    assert isinstance(statement, statements.QueryStatement)
    assert isinstance(statement.query.body, nodes.Select)
    return statement.query.body


def _expression(text: str) -> nodes.Expression:
    (item,) = _query(text).items
    assert isinstance(item, nodes.Item)
    return item.expression


@functools.cache
def type_of(text: str) -> SqlType:
    """Returns the type that SQL writes so; NOT NULL counts."""
    is_nullable = not text.endswith(" NOT NULL")
    cast = _expression(f"SELECT CAST(NULL AS {text.removesuffix(' NOT NULL')}) FROM t")
    assert isinstance(cast, nodes.Cast)
    return types.resolve(cast.type).nullable(is_nullable)


def bound(expression: str, row: Row | None = None) -> tuple[Expr, tuple[Field, ...]]:
    """Returns an expression over the columns of a row. Raises `SqlError`."""
    fields = tuple(Field(name, type_of(kind)) for name, (kind, _) in (row or {}).items())
    text = f"SELECT {expression} FROM t"
    try:
        return ExpressionBinder(Scope.of(fields, "t")).bind(_expression(text)), fields
    except Refusal as refusal:
        raise Source(text, "").error(refusal.message, refusal.span) from None


def evaluate(expression: str, row: Row | None = None) -> Any:
    """Returns the value of an expression for a row: `{"a": ("INT", 5)}`. Raises what fails at run time."""
    found, fields = bound(expression, row)
    run = compiled(Fragment(FromRows(fields), (Step(None, (found,)),), ToRows()))
    mapped = run([tuple(value for _, value in (row or {}).values())])
    if mapped.failed:
        raise mapped.failed[0]
    ((value,),) = mapped.values
    return value
