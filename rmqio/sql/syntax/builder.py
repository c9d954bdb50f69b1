"""Builds the syntax tree: one method for each rule of the grammar, called while the parser reduces."""

from __future__ import annotations

from typing import Any, Final

from lark import Token, v_args
from lark.tree import Meta

from rmqio.sql.errors import Refusal, Span
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.syntax.expression_builder import ExpressionBuilder, span_of, text_of, words

REFUSED: Final = {
    "MATCH_RECOGNIZE": "MATCH_RECOGNIZE is not supported: no runner of Beam recognizes patterns of rows",
    "NATURAL": "NATURAL JOIN is not supported: a new column would change the result; write ON ... or USING (...)",
    "UPDATE": "UPDATE is not supported: a topic cannot be changed; INSERT INTO a table with a PRIMARY KEY",
    "DELETE": "DELETE is not supported: a topic cannot be changed",
    "ALTER": "ALTER is not supported: change CREATE TABLE",
    "PIVOT": "PIVOT is not supported: use aggregates with FILTER",
    "UNPIVOT": "UNPIVOT is not supported: use CROSS JOIN UNNEST of an ARRAY",
    "QUALIFY": "QUALIFY is not supported: use a sub-query with WHERE",
    "TABLESAMPLE": "TABLESAMPLE is not supported: use WHERE RAND() < 0.1",
    "ILIKE": "ILIKE is not supported: use LOWER(...) LIKE",
    "TRUNCATE": "TRUNCATE is not supported: a topic cannot be emptied",
    "ANALYZE": "ANALYZE is not supported: plans need no statistics",
    "USE": "USE is not supported: catalogs are given by --catalog, and names are looked up in all of them",
    "CATALOG": "CREATE CATALOG is not supported: catalogs are given by --catalog, as a file or a schema registry's URL",
    "DATABASE": "databases are not supported: a catalog has tables only",
    "MODULE": "modules are not supported: all functions are there",
    "JAR": "jars are not supported: functions are Python, CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON",
    "MATERIALIZED": "materialized tables are not supported: INSERT INTO a table keeps it up to date",
}
"""Words of SQL that are refused by name."""


class Phrase:
    """A part of a statement that is not a node of its own, with the rule's name."""

    __slots__ = ("kind", "span", "value")

    def __init__(self, kind: str, value: Any, span: Span) -> None:
        self.kind, self.value, self.span = kind, value, span


def _phrase(kind: str) -> Any:
    def build(self: Any, meta: Meta, children: list[Any]) -> Phrase:
        return Phrase(kind, children, span_of(meta))

    return v_args(meta=True)(build)


def _take(children: list[Any], kind: str) -> list[Any] | None:
    """Returns the children of the phrase of this kind; None: it is not there."""
    return next((each.value for each in children if isinstance(each, Phrase) and each.kind == kind), None)


def _has(children: list[Any], token: str) -> bool:
    return any(isinstance(each, Token) and each.type == token for each in children)


def _of(children: list[Any], kind: type | tuple[type, ...]) -> list[Any]:
    return [each for each in children if isinstance(each, kind)]


@v_args(meta=True)
class Builder(ExpressionBuilder):
    """Statements and queries; expressions are in the base class."""

    # ---- phrases ----

    if_not_exists = _phrase("if_not_exists")
    if_exists = _phrase("if_exists")
    comment = _phrase("comment")
    partitioned = _phrase("partitioned")
    with_options = _phrase("options")
    from_ = _phrase("from")
    where = _phrase("where")
    group_by = _phrase("group_by")
    having = _phrase("having")
    emit = _phrase("emit")
    quantifier = _phrase("quantifier")
    alias = _phrase("alias")
    as_of = _phrase("as_of")
    select_items = _phrase("items")
    order_by = _phrase("order_by")
    partition_by = _phrase("partition_by")
    not_enforced = _phrase("not_enforced")
    not_null = _phrase("not_null")
    nullable = _phrase("nullable")
    column_key = _phrase("column_key")
    on = _phrase("on")
    using = _phrase("using")
    join_kind = _phrase("join_kind")
    drop_kind = _phrase("drop_kind")
    show_kind = _phrase("show_kind")
    into = _phrase("into")
    with_ = _phrase("with")
    table_items = _phrase("table_items")
    options = _phrase("option_list")

    def names(self, meta: Meta, children: list[Any]) -> Phrase:
        return Phrase("names", tuple(children), span_of(meta))

    # ---- statements ----

    def script(self, meta: Meta, children: list[Any]) -> list[Any]:
        return [self._statement(each) for each in children]

    def _statement(self, node: Any) -> Any:
        return statements.QueryStatement(node, span=node.span) if isinstance(node, nodes.Query) else node

    def create_table(self, meta: Meta, children: list[Any]) -> statements.CreateTable:
        if _take(children, "partitioned") is not None:
            raise Refusal("a table of rmqio is not partitioned: leave PARTITIONED BY out", span_of(meta))
        comment = _take(children, "comment")
        return statements.CreateTable(
            _of(children, nodes.Name)[0],
            tuple(_flat(_take(children, "table_items") or [], "table_items")),
            tuple(_flat(_take(children, "options") or [], "option_list")),
            _take(children, "if_not_exists") is not None,
            text_of(comment[0]) if comment else None,
            span=span_of(meta),
        )

    def physical(self, meta: Meta, children: list[Any]) -> statements.PhysicalColumn:
        comment = _take(children, "comment")
        return statements.PhysicalColumn(
            children[0],
            children[1],
            is_nullable=_take(children, "not_null") is None,
            is_key=_take(children, "column_key") is not None,
            comment=text_of(comment[0]) if comment else None,
            span=span_of(meta),
        )

    def metadata(self, meta: Meta, children: list[Any]) -> statements.MetadataColumn:
        comment = _take(children, "comment")
        key = next((text_of(each) for each in children if isinstance(each, Token) and each.type == "STRING"), None)
        return statements.MetadataColumn(
            children[0],
            children[1],
            key,
            _has(children, "VIRTUAL"),
            text_of(comment[0]) if comment else None,
            span=span_of(meta),
        )

    def header(self, meta: Meta, children: list[Any]) -> statements.MetadataColumn:
        return statements.MetadataColumn(children[0], children[1], None, True, span=span_of(meta))

    def computed(self, meta: Meta, children: list[Any]) -> statements.ComputedColumn:
        comment = _take(children, "comment")
        return statements.ComputedColumn(
            children[0], children[1], text_of(comment[0]) if comment else None, span=span_of(meta)
        )

    def watermark(self, meta: Meta, children: list[Any]) -> statements.Watermark:
        return statements.Watermark(children[-2], children[-1], span=span_of(meta))

    def primary_key(self, meta: Meta, children: list[Any]) -> statements.PrimaryKey:
        return statements.PrimaryKey(_take(children, "names") or (), span=span_of(meta))  # type: ignore[arg-type]

    def period(self, meta: Meta, children: list[Any]) -> statements.Period:
        return statements.Period(span=span_of(meta))

    def option(self, meta: Meta, children: list[Any]) -> statements.Option:
        key, value = children
        return statements.Option(key.value, value.value, span=span_of(meta), value_span=value.span)

    def option_key(self, meta: Meta, children: list[Any]) -> Phrase:
        return Phrase("text", ".".join(map(str, children)), span_of(meta))

    option_value = option_key

    def text(self, meta: Meta, children: list[Any]) -> Phrase:
        return Phrase("text", text_of(children[0]), span_of(meta))

    def negative_text(self, meta: Meta, children: list[Any]) -> Phrase:
        return Phrase("text", f"-{children[0]}", span_of(meta))

    def create_view(self, meta: Meta, children: list[Any]) -> statements.CreateView:
        return statements.CreateView(
            _of(children, nodes.Name)[0],
            tuple(_take(children, "names") or ()),
            children[-1],
            _take(children, "if_not_exists") is not None,
            span=span_of(meta),
        )

    def create_function(self, meta: Meta, children: list[Any]) -> statements.CreateFunction:
        name, *language = _of(children, nodes.Name)
        path = next(each for each in children if isinstance(each, Token) and each.type == "STRING")
        return statements.CreateFunction(
            name,
            text_of(path),
            language[0].text if language else None,
            _take(children, "if_not_exists") is not None,
            span=span_of(meta),
            path_span=span_of(path),
        )

    def drop(self, meta: Meta, children: list[Any]) -> statements.Drop:
        kind = words(_take(children, "drop_kind") or [])
        return statements.Drop(
            kind, _of(children, nodes.Name)[0], _take(children, "if_exists") is not None, span=span_of(meta)
        )

    def set(self, meta: Meta, children: list[Any]) -> statements.SetOption:
        if not children:
            return statements.SetOption(None, span=span_of(meta))
        return statements.SetOption(self.option(meta, children), span=span_of(meta))

    def reset(self, meta: Meta, children: list[Any]) -> statements.Reset:
        return statements.Reset(children[0].value if children else None, span=span_of(meta))

    def insert(self, meta: Meta, children: list[Any]) -> statements.Insert:
        return statements.Insert(
            _of(children, nodes.Name)[0],
            tuple(_take(children, "names") or ()),
            children[-1],
            words(_take(children, "into") or []) == "OVERWRITE",
            span=span_of(meta),
        )

    def begin_set(self, meta: Meta, children: list[Any]) -> statements.BeginSet:
        return statements.BeginSet(children[0] if children else None, span=span_of(meta))

    def end_set(self, meta: Meta, children: list[Any]) -> statements.EndSet:
        return statements.EndSet(span=span_of(meta))

    def explain(self, meta: Meta, children: list[Any]) -> statements.Explain:
        return statements.Explain(children[0], span=span_of(meta))

    def show(self, meta: Meta, children: list[Any]) -> statements.Show:
        parts = _take(children, "show_kind") or []
        name = _of(parts, nodes.Name)
        return statements.Show(words(_of(parts, Token)), name[0] if name else None, span=span_of(meta))

    def describe(self, meta: Meta, children: list[Any]) -> statements.Describe:
        return statements.Describe(_of(children, nodes.Name)[0], span=span_of(meta))

    # ---- queries ----

    def query(self, meta: Meta, children: list[Any]) -> nodes.Query:
        body = next(each for each in children if isinstance(each, nodes.Body))
        limit, offset = _take(children, "limit") or (None, 0)
        return nodes.Query(
            body,
            tuple(_take(children, "with") or ()),
            tuple(_take(children, "order_by") or ()),
            limit,
            offset,
            span=span_of(meta),
        )

    def cte(self, meta: Meta, children: list[Any]) -> nodes.CommonTable:
        return nodes.CommonTable(children[0], tuple(_take(children, "names") or ()), children[-1], span=span_of(meta))

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
        source, where, having = (_take(children, each) for each in ("from", "where", "having"))
        return nodes.Select(
            tuple(_take(children, "items") or ()),
            _joined(source) if source else None,
            where[0] if where else None,
            tuple(_take(children, "group_by") or ()),
            having[0] if having else None,
            words(_take(children, "quantifier") or []) == "DISTINCT",
            tuple(_take(children, "emit") or ()),
            span=span_of(meta),
        )

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
        kind = words(_take(children, "join_kind") or []).split(" ")[0] or "INNER"
        left, right = _of(children, nodes.FromItem)
        condition, using = _take(children, "on"), _take(children, "using")
        if condition is None and using is None:
            raise Refusal("a join needs its condition: add ON ... or USING (...), or write CROSS JOIN", right.span)
        return nodes.Join(
            left,
            right,
            kind,
            condition[0] if condition else None,
            tuple(_take(using, "names") or ()) if using else (),
            span=span_of(meta),
        )

    def cross_join(self, meta: Meta, children: list[Any]) -> nodes.Join:
        return nodes.Join(children[0], children[1], "CROSS", span=span_of(meta))

    def table(self, meta: Meta, children: list[Any]) -> nodes.TableRef:
        name, columns = _alias(children)
        as_of = _take(children, "as_of")
        return nodes.TableRef(children[0], name, columns, as_of[0] if as_of else None, span=span_of(meta))

    def derived(self, meta: Meta, children: list[Any], *, is_lateral: bool = False) -> nodes.Derived:
        name, columns = _alias(children)
        return nodes.Derived(_of(children, nodes.Query)[0], name, columns, is_lateral, span=span_of(meta))

    def lateral(self, meta: Meta, children: list[Any]) -> nodes.Derived:
        name, columns = _alias(children)
        return nodes.Derived(_of(children, nodes.Query)[0], name, columns, True, span=span_of(meta))

    def table_function(self, meta: Meta, children: list[Any]) -> nodes.TableFunction:
        name, columns = _alias(children)
        call = _of(children, nodes.Call)[0]
        return nodes.TableFunction(call, name, columns, _has(children, "LATERAL"), span=span_of(meta))

    def unnest(self, meta: Meta, children: list[Any]) -> nodes.Unnest:
        name, columns = _alias(children)
        return nodes.Unnest(children[0], name, columns, _has(children, "ORDINALITY"), span=span_of(meta))

    def sort(self, meta: Meta, children: list[Any]) -> nodes.Sort:
        direction, nulls = _take(children, "direction"), _take(children, "nulls")
        return nodes.Sort(
            children[0],
            bool(direction) and words(direction or []) == "DESC",
            words(nulls).removeprefix("NULLS ") if nulls else None,
            span=span_of(meta),
        )

    direction = _phrase("direction")
    nulls = _phrase("nulls")

    def limit(self, meta: Meta, children: list[Any]) -> Phrase:
        numbers = [_whole(each) for each in children if each.type == "NUMBER"]
        limit, *offset = numbers
        return Phrase("limit", (limit, offset[0] if offset else 0), span_of(meta))

    def offset_only(self, meta: Meta, children: list[Any]) -> Phrase:
        return Phrase("limit", (None, _whole(children[0])), span_of(meta))

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


# Rules whose names are Python's words.
setattr(Builder, "from", Builder.from_)
setattr(Builder, "with", Builder.with_)


def _flat(children: list[Any], kind: str) -> list[Any]:
    """The members of a left-recursive list."""
    found: list[Any] = []
    while children:
        first, *rest = children
        found[:0] = rest if isinstance(first, Phrase) and first.kind == kind else children
        children = first.value if isinstance(first, Phrase) and first.kind == kind else []
    return _unwrapped(found, kind)


def _unwrapped(found: list[Any], kind: str) -> list[Any]:
    return [each for each in found if not (isinstance(each, Phrase) and each.kind == kind)]


def _joined(items: list[Any]) -> Any:
    """`FROM a, b` is a cross join."""
    source, *rest = items
    for item in rest:
        source = nodes.Join(source, item, "CROSS", span=Span(source.span.start, item.span.end))
    return source


def _alias(children: list[Any]) -> tuple[nodes.Name | None, tuple[nodes.Name, ...]]:
    alias = _take(children, "alias")
    if alias is not None and (refused := REFUSED.get(alias[0].text.upper())) is not None:
        raise Refusal(refused, alias[0].span)
    return (None, ()) if alias is None else (alias[0], tuple(_take(alias, "names") or ()))


def _whole(token: Token) -> int:
    if not token.isdecimal():
        span = Span(token.start_pos or 0, token.end_pos or 0)
        raise Refusal(f"{token} is not a whole number", span)
    return int(token)
