"""The columns that a name can mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rmqio.sql.errors import Refusal, listed, nearest
from rmqio.sql.expressions import Expr, InputRef, Operation
from rmqio.sql.planning.plan import Field
from rmqio.sql.syntax import nodes


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
