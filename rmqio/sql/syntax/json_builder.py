"""Builds the nodes of functions of JSON."""

from __future__ import annotations

from typing import Any

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from rmqio.sql.syntax import nodes
from rmqio.sql.syntax.tokens import span_of, words


@v_args(meta=True)
class JsonBuilder(Transformer_NonRecursive[Token, Any]):
    """Functions of JSON with the clauses behind their arguments, and IS JSON."""

    def is_json(self, meta: Meta, children: list[Any]) -> nodes.IsTest:
        kind = words(children[-1].split())
        return nodes.IsTest(children[0], kind if " " in kind else "JSON VALUE", len(children) == 3, span=span_of(meta))

    def json_clauses(self, meta: Meta, children: list[Any]) -> nodes.JsonClauses:
        return nodes.JsonClauses(children[0], tuple(children[1:]), span=span_of(meta))

    def json_returning(self, meta: Meta, children: list[Any]) -> tuple[str, Any]:
        return "RETURNING", children[0]

    def json_event(self, meta: Meta, children: list[Any]) -> str:
        return str(children[0]).upper()

    def json_default(self, meta: Meta, children: list[Any]) -> tuple[str, Any]:
        return children[1], children[0]

    def json_result(self, meta: Meta, children: list[Any]) -> tuple[str, Any]:
        return children[1], words(children[0].split())

    def json_wrapper(self, meta: Meta, children: list[Any]) -> tuple[str, Any]:
        return "WRAPPER", words(children[0].split())

    def json_nulls(self, meta: Meta, children: list[Any]) -> tuple[str, Any]:
        return "NULL", words(children[0].split()[:1])

    def json_pair(self, meta: Meta, children: list[Any]) -> nodes.Expression:
        key, value, *clauses = children
        pair = nodes.JsonPair(key, value, span=span_of(meta))
        return nodes.JsonClauses(pair, tuple(clauses), span=span_of(meta)) if clauses else pair
