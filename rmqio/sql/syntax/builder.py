"""Builds the syntax tree: one method for each rule of the grammar, called while the parser reduces."""

from __future__ import annotations

from typing import Any

from lark import Token, v_args
from lark.tree import Meta

from rmqio.sql.errors import Refusal
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.syntax.phrases import Phrase, flat, has, of, phrase, take
from rmqio.sql.syntax.query_builder import QueryBuilder
from rmqio.sql.syntax.tokens import span_of, text_of, words


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
