"""Builds the nodes of queries: one method for each rule of the grammar."""

from __future__ import annotations

from typing import Any, Final

from lark import Token, v_args
from lark.tree import Meta

from rmqio.sql.errors import Refusal, Span
from rmqio.sql.syntax import nodes
from rmqio.sql.syntax.expression_builder import ExpressionBuilder
from rmqio.sql.syntax.phrases import Phrase, has, of, phrase, take
from rmqio.sql.syntax.refused_words import REFUSED
from rmqio.sql.syntax.tokens import span_of, text_of, words


@v_args(meta=True)
class QueryBuilder(ExpressionBuilder):
    """Queries; expressions are in the base class."""

    from_ = phrase("from")
    where = phrase("where")
    group_by = phrase("group_by")
    having = phrase("having")
    emit = phrase("emit")
    named_windows = phrase("named_windows")
    quantifier = phrase("quantifier")
    alias = phrase("alias")
    as_of = phrase("as_of")
    select_items = phrase("items")
    order_by = phrase("order_by")
    partition_by = phrase("partition_by")
    on = phrase("on")
    using = phrase("using")
    join_kind = phrase("join_kind")
    with_ = phrase("with")

    def names(self, meta: Meta, children: list[Any]) -> Phrase:
        return Phrase("names", tuple(children), span_of(meta))

    def query(self, meta: Meta, children: list[Any]) -> nodes.Query:
        body = next(each for each in children if isinstance(each, nodes.Body))
        limit, offset = take(children, "limit") or (None, 0)
        return nodes.Query(
            body,
            tuple(take(children, "with") or ()),
            tuple(take(children, "order_by") or ()),
            limit,
            offset,
            span=span_of(meta),
        )

    def cte(self, meta: Meta, children: list[Any]) -> nodes.CommonTable:
        return nodes.CommonTable(children[0], tuple(take(children, "names") or ()), children[-1], span=span_of(meta))

    def nested(self, meta: Meta, children: list[Any]) -> nodes.Query:
        return children[0]  # type: ignore[no-any-return]

    def set_operator(self, meta: Meta, children: list[Any]) -> Phrase:
        return Phrase("set_operator", [str(each).upper() for each in children], span_of(meta))

    def set_operation(self, meta: Meta, children: list[Any]) -> nodes.SetOperation:
        left, operator, right = children
        kind, *quantifier = operator.value
        kind = "EXCEPT" if kind == "MINUS" else kind
        return nodes.SetOperation(kind, quantifier == ["ALL"], left, right, span=span_of(meta))

    def values(self, meta: Meta, children: list[Any]) -> nodes.Values:
        return nodes.Values(tuple(children), span=span_of(meta))

    def value_row(self, meta: Meta, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    def select(self, meta: Meta, children: list[Any]) -> nodes.Select:
        source, where, having = (take(children, each) for each in ("from", "where", "having"))
        return nodes.Select(
            tuple(take(children, "items") or ()),
            _joined(source) if source else None,
            where[0] if where else None,
            tuple(take(children, "group_by") or ()),
            having[0] if having else None,
            words(take(children, "quantifier") or []) == "DISTINCT",
            tuple(take(children, "emit") or ()),
            tuple(take(children, "named_windows") or ()),
            span=span_of(meta),
        )

    def named_window(self, meta: Meta, children: list[Any]) -> tuple[nodes.Name, nodes.Over]:
        name, *rest = children
        return name, self.over(meta, rest)["over"]

    def grouping_sets(self, meta: Meta, children: list[Any]) -> nodes.GroupingSets:
        return nodes.GroupingSets(tuple(children[1:]), span=span_of(meta))

    def empty_set(self, meta: Meta, children: list[Any]) -> nodes.Row:
        return nodes.Row((), span=span_of(meta))

    def item(self, meta: Meta, children: list[Any]) -> nodes.Item:
        return nodes.Item(children[0], children[1] if len(children) > 1 else None, span=span_of(meta))

    def star(self, meta: Meta, children: list[Any]) -> nodes.Star:
        return nodes.Star(None, span=span_of(meta))

    def qualified_star(self, meta: Meta, children: list[Any]) -> nodes.Star:
        return nodes.Star(children[0], span=span_of(meta))

    def join(self, meta: Meta, children: list[Any]) -> nodes.Join:
        kind = words(take(children, "join_kind") or []).split(" ")[0] or "INNER"
        left, right = of(children, nodes.FromItem)
        condition, using = take(children, "on"), take(children, "using")
        if condition is None and using is None:
            raise Refusal("a join needs a condition: add ON ... or USING (...), or write CROSS JOIN", right.span)
        return nodes.Join(
            left,
            right,
            kind,
            condition[0] if condition else None,
            tuple(take(using, "names") or ()) if using else (),
            span=span_of(meta),
        )

    def cross_join(self, meta: Meta, children: list[Any]) -> nodes.Join:
        return nodes.Join(children[0], children[1], "CROSS", span=span_of(meta))

    def table(self, meta: Meta, children: list[Any]) -> nodes.TableRef:
        name, columns = _alias(children)
        as_of = take(children, "as_of")
        return nodes.TableRef(children[0], name, columns, as_of[0] if as_of else None, span=span_of(meta))

    def derived(self, meta: Meta, children: list[Any], *, is_lateral: bool = False) -> nodes.Derived:
        name, columns = _alias(children)
        return nodes.Derived(of(children, nodes.Query)[0], name, columns, is_lateral, span=span_of(meta))

    def lateral(self, meta: Meta, children: list[Any]) -> nodes.Derived:
        name, columns = _alias(children)
        return nodes.Derived(of(children, nodes.Query)[0], name, columns, True, span=span_of(meta))

    def table_function(self, meta: Meta, children: list[Any]) -> nodes.TableFunction:
        name, columns = _alias(children)
        call = of(children, nodes.Call)[0]
        return nodes.TableFunction(call, name, columns, has(children, "LATERAL"), span=span_of(meta))

    def unnest(self, meta: Meta, children: list[Any]) -> nodes.Unnest:
        name, columns = _alias(children)
        return nodes.Unnest(children[0], name, columns, has(children, "ORDINALITY"), span=span_of(meta))

    def sort(self, meta: Meta, children: list[Any]) -> nodes.Sort:
        direction, nulls = take(children, "direction"), take(children, "nulls")
        return nodes.Sort(
            children[0],
            bool(direction) and words(direction or []) == "DESC",
            words(nulls).removeprefix("NULLS ") if nulls else None,
            span=span_of(meta),
        )

    direction = phrase("direction")
    nulls = phrase("nulls")

    def limit(self, meta: Meta, children: list[Any]) -> Phrase:
        limit, offset = (*_numbers(children), 0)[:2]
        return Phrase("limit", (limit, offset), span_of(meta))

    def no_limit(self, meta: Meta, children: list[Any]) -> Phrase:
        return Phrase("limit", (None, *(*_numbers(children), 0)[:1]), span_of(meta))

    def offset_and_limit(self, meta: Meta, children: list[Any]) -> Phrase:
        offset, limit = _numbers(children)
        return Phrase("limit", (limit, offset), span_of(meta))

    def emit_changes(self, meta: Meta, children: list[Any]) -> nodes.Emit:
        return nodes.Emit("changes", span=span_of(meta))

    def emit_on_close(self, meta: Meta, children: list[Any]) -> nodes.Emit:
        return nodes.Emit("on_close", span=span_of(meta))

    def emit_delay(self, meta: Meta, children: list[Any]) -> nodes.Emit:
        text, unit, phase = children
        interval = nodes.Interval(text_of(text), unit, None, False, span=span_of(meta))
        return nodes.Emit("delay", interval, str(phase).upper(), span=span_of(meta))

    def emit_now(self, meta: Meta, children: list[Any]) -> nodes.Emit:
        return nodes.Emit("now", None, str(children[0]).upper(), span=span_of(meta))


_MOST_DIGITS: Final = 18
"""Of a number of rows. Python converts no more than 4,300."""

# Rules whose names are Python's words.
setattr(QueryBuilder, "from", QueryBuilder.from_)
setattr(QueryBuilder, "with", QueryBuilder.with_)


def _joined(items: list[Any]) -> Any:
    """`FROM a, b` is a cross join."""
    source, *rest = items
    for item in rest:
        source = nodes.Join(source, item, "CROSS", span=Span(source.span.start, item.span.end))
    return source


def _alias(children: list[Any]) -> tuple[nodes.Name | None, tuple[nodes.Name, ...]]:
    alias = take(children, "alias")
    if alias is not None and (refused := REFUSED.get(alias[0].text.upper())) is not None:
        raise Refusal(refused, alias[0].span)
    return (None, ()) if alias is None else (alias[0], tuple(take(alias, "names") or ()))


def _numbers(children: list[Any]) -> list[int]:
    return [_whole(each) for each in children if each.type == "NUMBER"]


def _whole(token: Token) -> int:
    span = Span(token.start_pos or 0, token.end_pos or 0)
    if not token.isdecimal():
        raise Refusal(f"{token} is not a whole number", span)
    if len(token) > _MOST_DIGITS:
        raise Refusal(f"this number has more than {_MOST_DIGITS} digits", span)
    return int(token)
