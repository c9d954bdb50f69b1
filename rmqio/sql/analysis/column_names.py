"""Names of the columns of a query: what SELECT gives them, lists that rename them, and names that are there twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmqio.errors import counted
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import InputRef
from rmqio.sql.planning.plan import Calc, Field, Relation
from rmqio.sql.syntax import nodes


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
