"""Functions of JSON: what stands behind their arguments, as `NULL ON EMPTY`, and the types of what they write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.analysis.values.calls import CallOf, Special
from rmqio.sql.errors import Refusal, listed
from rmqio.sql.expressions import Constant, Expr, Not, Operation
from rmqio.sql.syntax import nodes
from rmqio.sql.syntax.nodes import Name, TypeName
from rmqio.sql.types import SqlType

_RESULTS: Final = {
    ("JSON_VALUE", "EMPTY"): ("NULL", "ERROR"),
    ("JSON_VALUE", "ERROR"): ("NULL", "ERROR"),
    ("JSON_QUERY", "EMPTY"): ("NULL", "EMPTY ARRAY", "EMPTY OBJECT", "ERROR"),
    ("JSON_QUERY", "ERROR"): ("NULL", "EMPTY ARRAY", "EMPTY OBJECT", "ERROR"),
    ("JSON_EXISTS", "ERROR"): ("TRUE", "FALSE", "UNKNOWN", "ERROR"),
    ("JSON_ARRAY", "NULL"): ("NULL", "ABSENT"),
    ("JSON_OBJECT", "NULL"): ("NULL", "ABSENT"),
    ("JSON_ARRAYAGG", "NULL"): ("NULL", "ABSENT"),
    ("JSON_OBJECTAGG", "NULL"): ("NULL", "ABSENT"),
}
STEPS: Final = ("JSON TEXT", "JSON STATE", "JSON VALUE FAILED")
"""Functions that JSON_VALUE with clauses is made of, as calls."""
_KEYS: Final = {"JSON_VALUE": ("RETURNING", "EMPTY", "ERROR"), "JSON_QUERY": ("RETURNING", "WRAPPER", "EMPTY", "ERROR")}


def parts(node: nodes.Call) -> tuple[list[nodes.Expression], dict[str, Any]]:
    """Returns the arguments, and the clauses behind the last one. Raises `Refusal` for clauses of other functions."""
    arguments = list(node.arguments)
    last = arguments[-1] if arguments else None
    if not isinstance(last, nodes.JsonClauses):
        return arguments, {}
    name, found = node.name.text.upper(), {}
    arguments[-1:] = [] if last.operand is None else [last.operand]
    for key, what in last.clauses:
        possible = _RESULTS.get((name, key), ())
        is_default = key in ("EMPTY", "ERROR") and not isinstance(what, str) and name == "JSON_VALUE"
        if not (what in possible or is_default or (key in _KEYS.get(name, ()) and key in ("RETURNING", "WRAPPER"))):
            shown = f"ON {key}" if key in ("EMPTY", "ERROR", "NULL") else key
            hint = f": {listed([*possible, 'DEFAULT ...'] if name == 'JSON_VALUE' else possible)}" if possible else ""
            raise Refusal(f"{name} does not take this {shown}{hint}", last.span)
        if key in found:
            raise Refusal(f"{name} can have only one {key}", last.span)
        found[key] = what
    return arguments, found


def _json_value(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    arguments, clauses = parts(node)
    plain = call_of("JSON_VALUE", [binder.bind(each) for each in arguments], node)
    if not clauses:
        return plain
    kind = clauses.get("RETURNING") or TypeName("STRING", span=node.span)
    if kind.name not in ("STRING", "VARCHAR", "CHAR", "BOOLEAN", "INT", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL"):
        raise Refusal(f"JSON_VALUE returns STRING, BOOLEAN, INT, BIGINT, DOUBLE or DECIMAL, not {kind.name}", kind.span)

    def call(name: str, *more: nodes.Expression) -> nodes.Call:
        return nodes.Call(Name(name, span=node.span), (*arguments, *more), span=node.span)

    def outcome(event: str) -> nodes.Expression:
        said = clauses.get(event, "NULL")
        if said == "ERROR":
            said = call("JSON VALUE FAILED", nodes.Literal("string", event, span=node.span))
        elif said == "NULL":
            said = nodes.Literal("null", None, span=node.span)
        return nodes.Cast(said, kind, False, span=said.span)

    def is_state(number: str) -> nodes.Expression:
        return nodes.Binary("=", call("JSON STATE"), nodes.Literal("number", number, span=node.span), span=node.span)

    value: nodes.Expression = call("JSON TEXT")
    if "RETURNING" in clauses:  # a value of another type is an error
        tried = nodes.Cast(value, kind, True, span=node.span)
        value = nodes.Call(Name("COALESCE", span=node.span), (tried, outcome("ERROR")), span=node.span)
    whens = ((is_state("1"), outcome("EMPTY")), (is_state("2"), outcome("ERROR")))
    found: Expr = binder.bind(nodes.Case(None, whens, value, span=node.span))
    return found


def _json_query(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    arguments, clauses = parts(node)
    bound = [binder.bind(each) for each in arguments]
    plain = call_of("JSON_QUERY", bound, node)
    if not clauses:
        return plain
    wrapper = clauses.get("WRAPPER", "WITHOUT")
    kind = "" if wrapper.startswith("WITHOUT") else "CONDITIONAL" if " CONDITIONAL" in wrapper else "ALL"
    said = (kind, clauses.get("EMPTY", "NULL"), clauses.get("ERROR", "NULL"))
    returned = clauses.get("RETURNING")
    if returned is not None and types.resolve(returned) == types.array_of(types.VARCHAR):
        if "EMPTY OBJECT" in said:
            raise Refusal("JSON_QUERY RETURNING ARRAY<STRING> has no EMPTY OBJECT: use EMPTY ARRAY", node.span)
        return call_of("JSON QUERY ARRAY", [*bound, *map(_text, said)], node)
    if returned is not None and types.resolve(returned).kind != "VARCHAR":
        raise Refusal(f"JSON_QUERY returns STRING or ARRAY<STRING>, not {types.resolve(returned).text}", returned.span)
    return call_of("JSON QUERY", [*bound, *map(_text, said)], node)


def _json_exists(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    arguments, clauses = parts(node)
    bound = [binder.bind(each) for each in arguments]
    plain = call_of("JSON_EXISTS", bound, node)
    if not clauses:
        return plain
    return call_of("JSON EXISTS", [*bound, _text(clauses["ERROR"])], node)


def _text(text: str) -> Expr:
    return Constant(types.VARCHAR.nullable(False), text)


def is_json(node: nodes.IsTest, operand: Expr, call_of: CallOf) -> Expr:
    """Returns `operand IS [NOT] JSON ...`. Raises `Refusal` if it is not text."""
    if operand.type.kind not in ("VARCHAR", "NULL"):
        raise Refusal(f"IS JSON tests text, and this is {operand.type.text}", node.operand.span)
    found = call_of(f"IS {node.what}", [operand], node)
    return Not(found.type, found) if node.is_negated else found


# ---- writing: the types of the values travel as constants ------------------------------------------------------------


def _json_string(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    if len(node.arguments) != 1:
        raise Refusal("JSON_STRING takes one argument", node.span)
    value = binder.bind(node.arguments[0])
    kind = types.VARCHAR.nullable(value.type.is_nullable)
    if isinstance(value, Operation) and value.name in MADE:  # it is JSON already, and in other JSON it is a text
        return Operation(kind, "JSON_STRING OF JSON", (value,))
    return Operation(kind, "JSON_STRING", (carried(value.type), value))


def _json_array(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    arguments, clauses = parts(node)
    name = "JSON_ARRAY" if clauses.get("NULL", "ABSENT") == "ABSENT" else "JSON ARRAY WITH NULLS"
    return _json_of(name, [binder.bind(each) for each in arguments])


def _json_object(node: nodes.Call, binder: Any, call_of: CallOf) -> Expr:
    arguments, clauses = parts(node)
    given: list[nodes.Expression] = []
    for each in arguments:
        given += (each.key, each.value) if isinstance(each, nodes.JsonPair) else (each,)
    items = [binder.bind(each) for each in given]
    if len(items) % 2:
        raise Refusal("JSON_OBJECT takes keys and values in turn, but one value is missing", node.span)
    for key, at in zip(items[::2], given[::2], strict=True):
        if key.type.kind != "VARCHAR":
            raise Refusal(f"a key of JSON_OBJECT must be STRING, not {key.type.text}", at.span)
    return _json_of("JSON_OBJECT" if clauses.get("NULL", "NULL") == "NULL" else "JSON OBJECT WITHOUT NULLS", items)


MADE: Final = ("JSON_ARRAY", "JSON ARRAY WITH NULLS", "JSON_OBJECT", "JSON OBJECT WITHOUT NULLS")


def _json_of(name: str, items: Sequence[Expr]) -> Expr:
    raw = frozenset(i for i, each in enumerate(items) if isinstance(each, Operation) and each.name in MADE)
    kinds = tuple(each.type for each in items)
    return Operation(types.VARCHAR.nullable(False), name, (carried(kinds), carried(raw), *items))


def carried(value: Any) -> Constant:
    """Returns what a function needs to know about its arguments, as one of them."""
    return Constant(SqlType("CARRIED", False), value)


SPECIAL: Final[dict[str, Special]] = {
    "JSON_VALUE": _json_value, "JSON_QUERY": _json_query, "JSON_EXISTS": _json_exists,
    "JSON_STRING": _json_string, "JSON_ARRAY": _json_array, "JSON_OBJECT": _json_object,
}  # fmt: skip
