"""Names in queries: the columns that a name can mean, and the names that the columns of a query get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmqio.errors import counted
from rmqio.sql.errors import Refusal, Span, listed, nearest
from rmqio.sql.expressions import Expr, InputRef, Operation
from rmqio.sql.planning.plan import Calc, Field, Relation
from rmqio.sql.syntax import nodes

# Names of the columns of a query: what SELECT gives them, lists that rename them, and names that are there twice.


def name_of(item: nodes.Item, position: int) -> str:
    """Returns the name of an item of SELECT at a position."""
    if item.alias is not None:
        return item.alias.text
    if isinstance(item.expression, nodes.Column):
        return item.expression.name.text
    if isinstance(item.expression, nodes.Member):
        return item.expression.name.text
    return f"EXPR${position}"


def renamed(relation: Relation, columns: tuple[nodes.Name, ...], span: Span) -> Relation:
    """Returns the rows with other names, if there are any. Raises `Refusal` if they do not fit."""
    if not columns:
        return relation
    if len(columns) != len(relation.fields):
        raise Refusal(f"{counted(len(columns), 'name')} for {counted(len(relation.fields), 'column')}", span)
    if (again := _second(each.text for each in columns)) is not None:
        raise Refusal(f"the name {columns[again]} is listed twice", columns[again].span)
    fields = tuple(each._replace(name=name.text) for name, each in zip(columns, relation.fields, strict=True))
    return Calc(fields, relation, None, tuple(InputRef(each.type, i) for i, each in enumerate(relation.fields)))


def check_names(name: nodes.Name, columns: tuple[nodes.Name, ...], query: nodes.Query, fields: Sequence[Field]) -> None:
    """Raises `Refusal` if a column that a view or a query of WITH names has the name of another, as in Flink.

    Columns of `*` can have the same name: `SELECT *` reads them, and only a use of the name is ambiguous.
    """
    if columns:
        return
    names = [each.name for each in fields]
    for position, item in enumerate(_items(query)):
        if isinstance(item, nodes.Item) and names.count(again := name_of(item, position)) > 1:
            message = f"{name} has two columns {again}: give one of them another name with AS"
            raise Refusal(message, _place(query, again))


def _second(names: Iterable[str]) -> int | None:
    """The position of the first name that has come before."""
    seen: set[str] = set()
    for position, each in enumerate(names):
        if each in seen:
            return position
        seen.add(each)
    return None


def _items(query: nodes.Query) -> tuple[nodes.Item | nodes.Star, ...]:
    body: nodes.Body = query
    while isinstance(body, nodes.Query | nodes.SetOperation):
        body = body.body if isinstance(body, nodes.Query) else body.left
    return body.items if isinstance(body, nodes.Select) else ()


def _place(query: nodes.Query, name: str) -> Span | None:
    """The last item of SELECT with a name."""
    items = [each for i, each in enumerate(_items(query)) if isinstance(each, nodes.Item) and name_of(each, i) == name]
    return items[-1].span if items else None


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column, the name of its table, and what computes it."""

    table: str | None
    name: str
    expression: Expr


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns of FROM. Columns of a join with USING are there once: `merged` are the names of those."""

    columns: tuple[ScopeColumn, ...]
    merged: frozenset[str] = frozenset()

    @classmethod
    def of(cls, fields: Iterable[Field], table: str | None, start: int = 0) -> Scope:
        """Returns the columns of one relation."""
        return cls(
            tuple(ScopeColumn(table, each.name, InputRef(each.type, start + i)) for i, each in enumerate(fields))
        )

    def joined(self, other: Scope) -> Scope:
        """Returns the columns of both."""
        return Scope(self.columns + other.columns, self.merged | other.merged)

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys(each.table for each in self.columns if each.table))

    def find(self, node: nodes.Column | nodes.Member) -> Expr | None:
        """Returns what a dotted name means; None: it begins with an expression. Raises `Refusal` if it is unknown."""
        path = _path(node)
        if path is None:
            return None
        if len(path) > 1 and path[0].text in self.tables:
            found = self._named(path[1], path[0].text)
            return _fields(found, path[2:])
        return _fields(self._named(path[0], None), path[1:])

    def _named(self, name: nodes.Name, table: str | None) -> Expr:
        found = [each for each in self.columns if each.name == name.text and table in (None, each.table)]
        if len(found) > 1 and not (name.text in self.merged and table is None):
            if len({each.table for each in found}) == 1:
                where = found[0].table or "the query before"
                raise Refusal(
                    f"{name} is ambiguous: {len(found)} columns of {where} have this name; give them others with AS",
                    name.span,
                )
            places = listed([f"{each.table or '?'}.{each.name}" for each in found], "and")
            raise Refusal(f"{name} is ambiguous: it can be {places}", name.span)
        if not found:
            known = [each.name for each in self.columns if table in (None, each.table)]
            where = f" in {table}" if table else ""
            hint = nearest(name.text, known) or _listing(known)
            raise Refusal(f"there is no column {name}{where}{hint}", name.span)
        return found[0].expression

    def of_table(self, qualifier: nodes.Expression) -> list[ScopeColumn]:
        """Returns the columns of `qualifier.*`. Raises `Refusal` if there is no such table."""
        path = _path(qualifier) if isinstance(qualifier, (nodes.Column, nodes.Member)) else None
        if path is None or len(path) != 1:
            raise Refusal("only a table can precede .*", qualifier.span)
        found = [each for each in self.columns if each.table == path[0].text]
        if not found:
            raise Refusal(f"there is no table {path[0]}{nearest(path[0].text, self.tables)}", path[0].span)
        return found


def _path(node: nodes.Expression) -> list[nodes.Name] | None:
    if isinstance(node, nodes.Column):
        return [node.name]
    if isinstance(node, nodes.Member):
        before = _path(node.base)
        return None if before is None else [*before, node.name]
    return None


def _fields(expression: Expr, path: list[nodes.Name]) -> Expr:
    for name in path:
        expression = field_of(expression, name)
    return expression


def field_of(expression: Expr, name: nodes.Name) -> Expr:
    """Returns a field of a row. Raises `Refusal` if the expression is not a row, or has no such field."""
    if expression.type.kind != "ROW":
        raise Refusal(
            f"{name} is not a field: the expression before it is {expression.type.text}, not a ROW", name.span
        )
    if name.text not in expression.type.names:
        raise Refusal(f"the row has no field {name}{nearest(name.text, expression.type.names)}", name.span)
    index = expression.type.names.index(name.text)
    found = expression.type.elements[index]
    return Operation(found.nullable(found.is_nullable or expression.type.is_nullable), f"FIELD {index}", (expression,))


def _listing(names: list[str]) -> str:
    shown = list(dict.fromkeys(names))
    return f"; there are {', '.join(shown[:10])}{' ...' if len(shown) > 10 else ''}" if shown else ""


# The interface of what binds queries, for modules that it calls and that call it.


class Queries(Protocol):
    """Binds queries to a catalog. All methods raise `Refusal`."""

    @property
    def ttl_ms(self) -> int:
        """How long a row waits for partners; 0: it was not said."""

    def query(self, query: nodes.Query) -> Relation:
        """Returns the relation of a query."""

    def body(self, body: nodes.Body) -> Relation:
        """Returns the relation of a body."""

    def from_of(self, select: nodes.Select) -> tuple[Relation, Scope]:
        """Returns the rows of FROM, and the columns that expressions can name."""
