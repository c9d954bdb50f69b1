"""Builds the syntax tree: one method for each rule of the grammar, called while the parser reduces."""

from __future__ import annotations

from typing import Any, Final

from lark import Token, v_args
from lark.tree import Meta

from rmqio.sql.errors import Refusal, Span
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.syntax.expression_builder import ExpressionBuilder, span_of, text_of, words

# Phrases: the parts of statements and queries that are no nodes of the tree.


class Phrase:
    """A part of a statement that is not a node of its own, with the rule's name."""

    __slots__ = ("kind", "span", "value")

    def __init__(self, kind: str, value: Any, span: Span) -> None:
        self.kind, self.value, self.span = kind, value, span


def phrase(kind: str) -> Any:
    def build(self: Any, meta: Meta, children: list[Any]) -> Phrase:
        return Phrase(kind, children, span_of(meta))

    return v_args(meta=True)(build)


def take(children: list[Any], kind: str) -> list[Any] | None:
    """Returns the children of the phrase of this kind; None: it is not there."""
    return next((each.value for each in children if isinstance(each, Phrase) and each.kind == kind), None)


def has(children: list[Any], token: str) -> bool:
    return any(isinstance(each, Token) and each.type == token for each in children)


def of(children: list[Any], kind: type | tuple[type, ...]) -> list[Any]:
    return [each for each in children if isinstance(each, kind)]


def flat(children: list[Any], kind: str) -> list[Any]:
    """The members of a left-recursive list."""
    found: list[Any] = []
    while children:
        first, *rest = children
        found[:0] = rest if isinstance(first, Phrase) and first.kind == kind else children
        children = first.value if isinstance(first, Phrase) and first.kind == kind else []
    return _unwrapped(found, kind)


def _unwrapped(found: list[Any], kind: str) -> list[Any]:
    return [each for each in found if not (isinstance(each, Phrase) and each.kind == kind)]


# Words of SQL that are refused by name, each with a way out.

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
    "OVERLAPS": "OVERLAPS is not supported: (a, b) and (c, d) do so if a <= d AND c <= b",
    "TRUNCATE": "TRUNCATE is not supported: a topic cannot be emptied",
    "ANALYZE": "ANALYZE is not supported: plans need no statistics",
    "WITHIN": "WITHIN GROUP is not supported: rows of a group come in no order",
    "TOP": "TOP is not supported: use LIMIT at the end of the query",
    "USE": "USE is not supported: catalogs are given by --catalog, and names are looked up in all of them",
    "CATALOG": "CREATE CATALOG is not supported: catalogs are given by --catalog, as a file or a schema registry's URL",
    "DATABASE": "databases are not supported: a catalog has tables only",
    "MODULE": "modules are not supported: all functions are there",
    "JAR": "jars are not supported: functions are Python, CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON",
    "MATERIALIZED": "materialized tables are not supported: INSERT INTO a table keeps it up to date",
}


# Builds the nodes of queries: one method for each rule of the grammar.


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


@v_args(meta=True)
class Builder(QueryBuilder):
    """Statements; queries are in the base class."""

    if_not_exists = phrase("if_not_exists")
    if_exists = phrase("if_exists")
    comment = phrase("comment")
    partitioned = phrase("partitioned")
    with_options = phrase("options")
    not_enforced = phrase("not_enforced")
    not_null = phrase("not_null")
    nullable = phrase("nullable")
    column_key = phrase("column_key")
    drop_kind = phrase("drop_kind")
    show_kind = phrase("show_kind")
    into = phrase("into")
    table_items = phrase("table_items")
    options = phrase("option_list")

    def script(self, meta: Meta, children: list[Any]) -> list[Any]:
        return [self._statement(each) for each in children]

    def _statement(self, node: Any) -> Any:
        return statements.QueryStatement(node, span=node.span) if isinstance(node, nodes.Query) else node

    def create_table(self, meta: Meta, children: list[Any]) -> statements.CreateTable:
        if take(children, "partitioned") is not None:
            raise Refusal("a table of rmqio is not partitioned: leave PARTITIONED BY out", span_of(meta))
        comment = take(children, "comment")
        return statements.CreateTable(
            of(children, nodes.Name)[0],
            tuple(flat(take(children, "table_items") or [], "table_items")),
            tuple(flat(take(children, "options") or [], "option_list")),
            take(children, "if_not_exists") is not None,
            text_of(comment[0]) if comment else None,
            span=span_of(meta),
        )

    def physical(self, meta: Meta, children: list[Any]) -> statements.PhysicalColumn:
        comment = take(children, "comment")
        return statements.PhysicalColumn(
            children[0],
            children[1],
            is_nullable=take(children, "not_null") is None,
            is_key=take(children, "column_key") is not None,
            comment=text_of(comment[0]) if comment else None,
            span=span_of(meta),
        )

    def metadata(self, meta: Meta, children: list[Any]) -> statements.MetadataColumn:
        comment = take(children, "comment")
        key = next((text_of(each) for each in children if isinstance(each, Token) and each.type == "STRING"), None)
        return statements.MetadataColumn(
            children[0],
            children[1],
            key,
            has(children, "VIRTUAL"),
            text_of(comment[0]) if comment else None,
            span=span_of(meta),
        )

    def header(self, meta: Meta, children: list[Any]) -> statements.MetadataColumn:
        return statements.MetadataColumn(children[0], children[1], None, True, span=span_of(meta))

    def computed(self, meta: Meta, children: list[Any]) -> statements.ComputedColumn:
        comment = take(children, "comment")
        return statements.ComputedColumn(
            children[0], children[1], text_of(comment[0]) if comment else None, span=span_of(meta)
        )

    def watermark(self, meta: Meta, children: list[Any]) -> statements.Watermark:
        return statements.Watermark(children[-2], children[-1], span=span_of(meta))

    def primary_key(self, meta: Meta, children: list[Any]) -> statements.PrimaryKey:
        return statements.PrimaryKey(take(children, "names") or (), span=span_of(meta))  # type: ignore[arg-type]

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
            of(children, nodes.Name)[0],
            tuple(take(children, "names") or ()),
            children[-1],
            take(children, "if_not_exists") is not None,
            span=span_of(meta),
        )

    def create_function(self, meta: Meta, children: list[Any]) -> statements.CreateFunction:
        name, *language = of(children, nodes.Name)
        path = next(each for each in children if isinstance(each, Token) and each.type == "STRING")
        return statements.CreateFunction(
            name,
            text_of(path),
            language[0].text if language else None,
            take(children, "if_not_exists") is not None,
            span=span_of(meta),
            path_span=span_of(path),
        )

    def drop(self, meta: Meta, children: list[Any]) -> statements.Drop:
        kind = words(take(children, "drop_kind") or [])
        return statements.Drop(
            kind, of(children, nodes.Name)[0], take(children, "if_exists") is not None, span=span_of(meta)
        )

    def set(self, meta: Meta, children: list[Any]) -> statements.SetOption:
        if not children:
            return statements.SetOption(None, span=span_of(meta))
        return statements.SetOption(self.option(meta, children), span=span_of(meta))

    def reset(self, meta: Meta, children: list[Any]) -> statements.Reset:
        return statements.Reset(children[0].value if children else None, span=span_of(meta))

    def insert(self, meta: Meta, children: list[Any]) -> statements.Insert:
        return statements.Insert(
            of(children, nodes.Name)[0],
            tuple(take(children, "names") or ()),
            children[-1],
            words(take(children, "into") or []) == "OVERWRITE",
            span=span_of(meta),
        )

    def begin_set(self, meta: Meta, children: list[Any]) -> statements.BeginSet:
        return statements.BeginSet(children[0] if children else None, span=span_of(meta))

    def end_set(self, meta: Meta, children: list[Any]) -> statements.EndSet:
        return statements.EndSet(span=span_of(meta))

    def explain(self, meta: Meta, children: list[Any]) -> statements.Explain:
        return statements.Explain(children[0], span=span_of(meta))

    def show(self, meta: Meta, children: list[Any]) -> statements.Show:
        parts = take(children, "show_kind") or []
        name = of(parts, nodes.Name)
        return statements.Show(words(of(parts, Token)), name[0] if name else None, span=span_of(meta))

    def describe(self, meta: Meta, children: list[Any]) -> statements.Describe:
        return statements.Describe(of(children, nodes.Name)[0], span=span_of(meta))
