"""Builds the nodes of expressions and types."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from rmqio.sql.errors import Refusal, Span
from rmqio.sql.syntax import nodes
from rmqio.sql.syntax.nodes import Name, TypeName

# Tokens of the parser: their places and texts.


def span_of(meta: Meta | Token) -> Span:
    """Returns the characters of a rule or a token."""
    if isinstance(meta, Token):
        return Span(meta.start_pos or 0, meta.end_pos or 0)
    return Span(meta.start_pos, meta.end_pos) if not meta.empty else nodes.NOWHERE


def text_of(token: Token) -> str:
    """Returns the text of a string literal."""
    return token[1:-1].replace("''", "'")


def words(tokens: list[Any]) -> str:
    """Returns keywords in upper case, with one space between them."""
    return " ".join(str(each).upper() for each in tokens)


# Builds the nodes of functions of JSON.


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


# Quantified comparisons that are not supported, and the way out for each.


def instead_of(operator: str, quantifier: str, items: Any) -> str:
    """Returns the way out for a quantified comparison that is not supported."""
    is_all = quantifier == "ALL"
    smallest = (operator[0] == ">") != is_all
    if isinstance(items, tuple):
        values = [_brief(each) for each in items]
        shown = values if None not in values and len(values) <= 3 else ["a", "b"][: len(values)]
        way = f"write {(' AND ' if is_all else ' OR ').join(f'value {operator} {each}' for each in shown)}"
        if operator[0] in "<>" and operator != "<>" and len(items) > 1:
            way += f", or value {operator} {'LEAST' if smallest else 'GREATEST'}({', '.join(map(str, shown))})"
        return way
    if operator == "<>":  # ANY, SOME
        return "use EXISTS (SELECT ... WHERE column <> value), or NOT IN for <> ALL"
    if operator == "=":  # ALL
        return "use NOT EXISTS (SELECT ... WHERE column <> value), or IN for = ANY"
    return f"compare with the aggregate, value {operator} (SELECT {'MIN' if smallest else 'MAX'}(column) FROM ...)"


def _brief(item: nodes.Node) -> str | None:
    """Returns the text of a short literal."""
    if not isinstance(item, nodes.Literal) or item.kind not in ("number", "string") or len(item.value) > 20:
        return None
    return str(item.value) if item.kind == "number" else "'" + item.value.replace("'", "''") + "'"


_LITERAL: Final = re.compile(r"'(?:[^']|'')*'|[^\s,]+")
"""One of the literals of the terminal LITERALS."""
_OF_UNITS = frozenset({"EXTRACT", "TIMESTAMPADD", "TIMESTAMPDIFF"})
"""Functions whose first argument is a unit of time, which is written as a column is."""
UNITS = ("MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")


@v_args(meta=True)
class ExpressionBuilder(JsonBuilder):
    """Expressions, types and names. A tree can be deep: it is walked without recursion."""

    # ---- names ----

    def word(self, meta: Meta, children: list[Any]) -> Name:
        return Name(str(children[0]), span=span_of(meta))

    def quoted(self, meta: Meta, children: list[Any]) -> Name:
        return Name(children[0][1:-1].replace("``", "`"), span=span_of(meta))

    def braced(self, meta: Meta, children: list[Any]) -> Name:
        return Name(children[0][1:-1].strip(), span=span_of(meta))

    def keyword_name(self, meta: Meta, children: list[Any]) -> Name:
        return Name(str(children[0]), span=span_of(meta))

    def name(self, meta: Meta, children: list[Any]) -> Name:
        return children[0]  # type: ignore[no-any-return]

    def function_name(self, meta: Meta, children: list[Any]) -> Name:
        name = children[0]
        return name if isinstance(name, Name) else Name(str(name), span=span_of(meta))

    # ---- literals ----

    def number(self, meta: Meta, children: list[Any]) -> nodes.Literal:
        return nodes.Literal("number", str(children[0]), span=span_of(meta))

    def string(self, meta: Meta, children: list[Any]) -> nodes.Literal:
        return nodes.Literal("string", text_of(children[0]), span=span_of(meta))

    def binary_string(self, meta: Meta, children: list[Any]) -> nodes.Literal:
        return nodes.Literal("binary", children[0][2:-1], span=span_of(meta))

    def true(self, meta: Meta, children: list[Any]) -> nodes.Literal:
        return nodes.Literal("boolean", True, span=span_of(meta))

    def false(self, meta: Meta, children: list[Any]) -> nodes.Literal:
        return nodes.Literal("boolean", False, span=span_of(meta))

    def null(self, meta: Meta, children: list[Any]) -> nodes.Literal:
        return nodes.Literal("null", None, span=span_of(meta))

    def date(self, meta: Meta, children: list[Any]) -> nodes.Literal:
        return nodes.Literal("date", text_of(children[0]), span=span_of(meta))

    def time(self, meta: Meta, children: list[Any]) -> nodes.Literal:
        return nodes.Literal("time", text_of(children[0]), span=span_of(meta))

    def timestamp(self, meta: Meta, children: list[Any]) -> nodes.Literal:
        return nodes.Literal("timestamp", text_of(children[0]), span=span_of(meta))

    def sign(self, meta: Meta, children: list[Any]) -> str:
        return str(children[0])

    def unit(self, meta: Meta, children: list[Any]) -> str:
        return unit_named(str(children[0]), span_of(children[0]))

    def interval(self, meta: Meta, children: list[Any]) -> nodes.Interval:
        is_negative = not isinstance(children[0], Token) and children[0] == "-"
        value = next(each for each in children if isinstance(each, Token))
        unit, *to = children[children.index(value) + 1 :]
        text = text_of(value) if value.type == "STRING" else str(value)
        return nodes.Interval(text, unit, to[0] if to else None, is_negative, span=span_of(meta))

    # ---- operators ----

    def or_(self, meta: Meta, children: list[Any]) -> nodes.Binary:
        return nodes.Binary("OR", *children, span=span_of(meta))

    def and_(self, meta: Meta, children: list[Any]) -> nodes.Binary:
        return nodes.Binary("AND", *children, span=span_of(meta))

    def not_(self, meta: Meta, children: list[Any]) -> nodes.Unary:
        return nodes.Unary("NOT", children[0], span=span_of(meta))

    def negative(self, meta: Meta, children: list[Any]) -> Any:
        if isinstance(children[0], Token):  # a value of an option
            return self.negative_text(meta, children)  # type: ignore[attr-defined]
        return nodes.Unary("-", children[0], span=span_of(meta))

    def comparator(self, meta: Meta, children: list[Any]) -> str:
        return {"==": "=", "!=": "<>"}.get(children[0], str(children[0]))

    def add_operator(self, meta: Meta, children: list[Any]) -> str:
        return str(children[0])

    mul_operator = add_operator

    def binary(self, meta: Meta, children: list[Any]) -> nodes.Binary:
        left, operator, right = children
        return nodes.Binary(operator, left, right, span=span_of(meta))

    comparison = binary

    def is_what(self, meta: Meta, children: list[Any]) -> str:
        return str(children[0]).upper()

    def is_(self, meta: Meta, children: list[Any]) -> nodes.IsTest:
        return nodes.IsTest(children[0], children[-1], len(children) == 3, span=span_of(meta))

    def distinct_from(self, meta: Meta, children: list[Any]) -> nodes.DistinctFrom:
        return nodes.DistinctFrom(children[0], children[-1], len(children) == 3, span=span_of(meta))

    def between(self, meta: Meta, children: list[Any]) -> nodes.Between:
        kinds = [each.type for each in children if isinstance(each, Token)]
        operand, low, high = (each for each in children if not isinstance(each, Token))
        return nodes.Between(operand, low, high, "NOT" in kinds, "SYMMETRIC" in kinds, span=span_of(meta))

    def in_items(self, meta: Meta, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    def in_literals(self, meta: Meta, children: list[Any]) -> tuple[nodes.Literal, ...]:
        (token,) = children
        start = token.start_pos
        found = []
        for each in _LITERAL.finditer(token):
            span = Span(start + each.start(), start + each.end())
            kind, value = ("string", each[0][1:-1].replace("''", "'")) if each[0][0] == "'" else ("number", each[0])
            found.append(nodes.Literal(kind, value, span=span))
        return tuple(found)

    def in_list(self, meta: Meta, children: list[Any]) -> nodes.InList:
        return nodes.InList(children[0], children[-1], len(children) == 3, span=span_of(meta))

    def in_query(self, meta: Meta, children: list[Any]) -> nodes.InQuery:
        return nodes.InQuery(children[0], children[-1], len(children) == 3, span=span_of(meta))

    def quantified(self, meta: Meta, children: list[Any]) -> nodes.InList | nodes.InQuery:
        """`= ANY` and `= SOME` are IN; `<> ALL` is NOT IN."""
        operand, operator, token, items = children
        quantifier, span = token.upper(), span_of(meta)
        is_in = operator == "=" and quantifier != "ALL"
        if not is_in and (operator, quantifier) != ("<>", "ALL"):
            raise Refusal(
                f"{operator} {quantifier} is not supported: {instead_of(operator, quantifier, items)}",
                Span(token.start_pos, token.end_pos),
            )
        if isinstance(items, tuple):
            return nodes.InList(operand, items, not is_in, span=span)
        return nodes.InQuery(operand, items, not is_in, span=span)

    def like(self, meta: Meta, children: list[Any]) -> nodes.Like:
        kinds = [each for each in children if isinstance(each, Token)]
        operand, pattern, *escape = (each for each in children if not isinstance(each, Token))
        kind = " ".join(kinds[-1].upper().split())
        return nodes.Like(operand, pattern, escape[0] if escape else None, len(kinds) == 2, kind, span=span_of(meta))

    def exists(self, meta: Meta, children: list[Any]) -> nodes.Exists:
        return nodes.Exists(children[0], span=span_of(meta))

    def scalar_query(self, meta: Meta, children: list[Any]) -> nodes.ScalarQuery:
        return nodes.ScalarQuery(children[0], span=span_of(meta))

    def parenthesis(self, meta: Meta, children: list[Any]) -> Any:
        return children[0]

    def column(self, meta: Meta, children: list[Any]) -> nodes.Column:
        return nodes.Column(children[0], span=span_of(meta))

    def member(self, meta: Meta, children: list[Any]) -> nodes.Member:
        return nodes.Member(children[0], children[1], span=span_of(meta))

    def subscript(self, meta: Meta, children: list[Any]) -> nodes.Subscript:
        return nodes.Subscript(children[0], children[1], span=span_of(meta))

    def row(self, meta: Meta, children: list[Any]) -> nodes.Row:
        return nodes.Row(tuple(children), span=span_of(meta))

    def array(self, meta: Meta, children: list[Any]) -> nodes.Array:
        return nodes.Array(tuple(children), span=span_of(meta))

    def map(self, meta: Meta, children: list[Any]) -> nodes.MapOf:
        if len(children) % 2:
            raise Refusal("MAP takes keys and values in turn, but one value is missing", span_of(meta))
        return nodes.MapOf(tuple(children), span=span_of(meta))

    def when(self, meta: Meta, children: list[Any]) -> list[tuple[Any, Any]]:
        *values, result = children
        return [(each, result) for each in values]

    when_any = when

    def else_(self, meta: Meta, children: list[Any]) -> tuple[Any]:
        return (children[0],)

    def searched_case(self, meta: Meta, children: list[Any]) -> nodes.Case:
        return self._case(meta, None, children)

    def simple_case(self, meta: Meta, children: list[Any]) -> nodes.Case:
        return self._case(meta, children[0], children[1:])

    def _case(self, meta: Meta, operand: Any, parts: list[Any]) -> nodes.Case:
        whens = tuple(pair for each in parts if isinstance(each, list) for pair in each)
        otherwise = next((each[0] for each in parts if isinstance(each, tuple)), None)
        return nodes.Case(operand, whens, otherwise, span=span_of(meta))

    def cast(self, meta: Meta, children: list[Any]) -> nodes.Cast:
        keyword, operand, type_name = children
        return nodes.Cast(operand, type_name, keyword.upper() == "TRY_CAST", span=span_of(meta))

    def extraction(self, meta: Meta, children: list[Any]) -> nodes.Call:
        unit, operand = children
        name = Name("EXTRACT", span=span_of(meta))
        return nodes.Call(name, (nodes.Unit(unit.text, span=unit.span), operand), span=span_of(meta))

    # ---- calls ----

    def filter(self, meta: Meta, children: list[Any]) -> dict[str, Any]:
        return {"filter": children[0]}

    def over(self, meta: Meta, children: list[Any]) -> dict[str, Any]:
        parts = {getattr(each, "kind", "frame"): each for each in children}
        partition, order = parts.get("partition_by"), parts.get("order_by")
        over = nodes.Over(
            tuple(partition.value) if partition else (),
            tuple(order.value) if order else (),
            parts.get("frame"),
            span=span_of(meta),
        )
        return {"over": over}

    def over_name(self, meta: Meta, children: list[Any]) -> dict[str, Any]:
        return {"over": nodes.Over((), (), None, children[0], span=span_of(meta))}

    def call(self, meta: Meta, children: list[Any]) -> nodes.Call:
        name, *rest = children
        extra: dict[str, Any] = {}
        arguments = []
        for each in rest:
            if isinstance(each, dict):
                extra |= each
            elif isinstance(each, nodes.Node):
                arguments.append(each)
            elif isinstance(each, list):
                arguments += each
            elif isinstance(each, tuple):  # NULL ON NULL without anything before it
                arguments.append(nodes.JsonClauses(None, (each,), span=span_of(meta)))
            else:
                extra["quantifier"] = words(each.value)
        if name.text in _OF_UNITS and arguments and isinstance(arguments[0], nodes.Column):
            arguments[0] = nodes.Unit(arguments[0].name.text, span=arguments[0].span)
        return nodes.Call(name, tuple(arguments), span=span_of(meta), **extra)  # type: ignore[arg-type]

    def call_star(self, meta: Meta, children: list[Any]) -> nodes.Call:
        name, *rest = children
        extra: dict[str, Any] = {}
        for each in rest:
            extra |= each
        return nodes.Call(name, (), is_star=True, span=span_of(meta), **extra)

    def to_unit(self, meta: Meta, children: list[Any]) -> nodes.ToUnit:
        return nodes.ToUnit(children[0], children[1], span=span_of(meta))

    def from_for(self, meta: Meta, children: list[Any]) -> nodes.FromFor:
        operand, start, *length = children
        return nodes.FromFor(operand, start, length[0] if length else None, span=span_of(meta))

    def placing(self, meta: Meta, children: list[Any]) -> nodes.Placing:
        operand, other, start, *length = children
        return nodes.Placing(operand, other, start, length[0] if length else None, span=span_of(meta))

    def position_in(self, meta: Meta, children: list[Any]) -> list[nodes.Expression]:
        return children

    def trim_side(self, meta: Meta, children: list[Any]) -> str:
        return str(children[0]).upper()

    def trim(self, meta: Meta, children: list[Any]) -> nodes.Trim:
        side, *characters, operand = children
        return nodes.Trim(side, characters[0] if characters else None, operand, span=span_of(meta))

    def table_argument(self, meta: Meta, children: list[Any]) -> nodes.TableArgument:
        partition = children[1] if len(children) > 1 else ()
        return nodes.TableArgument(children[0], partition, span=span_of(meta))

    query_argument = table_argument

    def table_partition(self, meta: Meta, children: list[Any]) -> tuple[Name, ...]:
        (found,) = children
        return (found,) if isinstance(found, Name) else found.value

    def named_argument(self, meta: Meta, children: list[Any]) -> nodes.NamedArgument:
        return nodes.NamedArgument(children[0], children[1], span=span_of(meta))

    def frame(self, meta: Meta, children: list[Any]) -> nodes.Frame:
        unit, start, *end = children
        return nodes.Frame(str(unit).upper(), start, end[0] if end else None, span=span_of(meta))

    def unbounded(self, meta: Meta, children: list[Any]) -> tuple[str, Any]:
        return "unbounded", None

    def unbounded_following(self, meta: Meta, children: list[Any]) -> tuple[str, Any]:
        return "unbounded_following", None

    def current_row(self, meta: Meta, children: list[Any]) -> tuple[str, Any]:
        return "current_row", None

    def preceding(self, meta: Meta, children: list[Any]) -> tuple[str, Any]:
        return "preceding", children[0]

    def following(self, meta: Meta, children: list[Any]) -> tuple[str, Any]:
        return "following", children[0]

    # ---- types ----

    def type_name(self, meta: Meta, children: list[Any]) -> str:
        return str(children[0]).upper()

    def date_name(self, meta: Meta, children: list[Any]) -> str:
        return "DATE"

    def simple_type(self, meta: Meta, children: list[Any]) -> TypeName:
        name, *numbers = children
        return TypeName(name, _numbers(numbers), span=span_of(meta))

    def without_zone(self, meta: Meta, children: list[Any]) -> str:
        return "TIMESTAMP"

    def with_zone(self, meta: Meta, children: list[Any]) -> str:
        raise Refusal("TIMESTAMP WITH TIME ZONE is not supported; use TIMESTAMP(3) WITH LOCAL TIME ZONE", span_of(meta))

    def local_zone(self, meta: Meta, children: list[Any]) -> str:
        return "TIMESTAMP_LTZ"

    def timestamp_type(self, meta: Meta, children: list[Any]) -> TypeName:
        numbers = [each for each in children if isinstance(each, Token)]
        name = next((each for each in children if not isinstance(each, Token)), "TIMESTAMP")
        return TypeName(name, _numbers(numbers), span=span_of(meta))

    def time_type(self, meta: Meta, children: list[Any]) -> TypeName:
        return TypeName("TIME", _numbers([each for each in children if each.type == "NUMBER"]), span=span_of(meta))

    def double_type(self, meta: Meta, children: list[Any]) -> TypeName:
        return TypeName("DOUBLE", span=span_of(meta))

    def not_null_type(self, meta: Meta, children: list[Any]) -> TypeName:
        found: TypeName = children[0]
        return replace(found, is_nullable=False)

    def array_type(self, meta: Meta, children: list[Any]) -> TypeName:
        return TypeName("ARRAY", elements=tuple(children), span=span_of(meta))

    def map_type(self, meta: Meta, children: list[Any]) -> TypeName:
        return TypeName("MAP", elements=tuple(children), span=span_of(meta))

    def row_field(self, meta: Meta, children: list[Any]) -> tuple[Name, TypeName]:
        return children[0], children[1]

    def row_type(self, meta: Meta, children: list[Any]) -> TypeName:
        names, types = zip(*children, strict=True)
        return TypeName("ROW", elements=types, fields=names, span=span_of(meta))


# Rules whose names are Python's words.
setattr(ExpressionBuilder, "else", ExpressionBuilder.else_)


def unit_named(text: str, span: Span) -> str:
    """Returns the unit of time in upper case and in the singular. Raises `Refusal`."""
    unit = text.upper()
    for known in UNITS:
        if unit in (known, f"{known}S"):
            return known
    raise Refusal(f"{text} is not a unit of time; they are {', '.join(UNITS)}", span)


def _numbers(tokens: list[Token]) -> tuple[int, ...]:
    for each in tokens:
        if not each.isdecimal() or len(each) > 10:
            raise Refusal(f"{each:.20} is not a whole number of at most ten digits", span_of(each))
    return tuple(map(int, tokens))
