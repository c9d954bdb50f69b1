"""EXPLAIN of the relations of `rmqio.sql.planning.relations`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqio.errors import counted
from rmqio.sql.analysis.sinks.endings import ends_by_itself
from rmqio.sql.constant_text import duration
from rmqio.sql.explain.analytic import analytic_lines, call_text, order_text
from rmqio.sql.expressions import IN_QUERY, conjuncts
from rmqio.sql.planning.plan import Relation
from rmqio.sql.planning.relations import MOST_SORTED, Analytic, Over, OverCall, Repeated, Sorted, SubqueryJoin
from rmqio.sql.text import text_of

Names = Callable[[Relation], list[str]]
"""Returns the columns of a relation as text."""


def more_names(relation: SubqueryJoin | Over | Analytic | Sorted | Repeated, names: Names) -> list[str]:
    """Returns the columns of a relation of ours as text."""
    match relation:
        case SubqueryJoin():
            left, right = names(relation.left), names(relation.right)
            if relation.kind == "SCALAR":
                return [*left, *(right[each] for each in relation.values)]
            return [*left, _mark(relation, left)] if relation.kind == "MARK" else left
        case Over():
            own = names(relation.input)
            return [*own, *(_call(each, own) for each in relation.calls)]
        case Analytic():
            own = names(relation.input)
            return [*own, *(call_text(each, own) for each in relation.calls)]
        case Sorted():
            return names(relation.input)
    return names(relation.input)[:-1]


def more_described(relation: SubqueryJoin | Over | Analytic | Sorted | Repeated, names: Names) -> list[str]:
    """Returns the lines of a relation of ours: its head, and details."""
    match relation:
        case SubqueryJoin():
            return _lookup(relation, names)
        case Over():
            return _over(relation, names)
        case Analytic():
            return analytic_lines(relation, names(relation.input))
        case Sorted():
            return _sorted(relation, names)
    return ["Repeat each row as often as the counts of both sides say"]


def more_step(relation: SubqueryJoin | Over | Analytic | Sorted | Repeated, names: Names) -> dict[str, Any]:
    """Returns what the state of a relation of ours depends on, for the signature of a job."""

    def typed(each: Relation) -> list[str]:
        return [f"{name} {field.type.text}" for name, field in zip(names(each), each.fields, strict=True)]

    match relation:
        case SubqueryJoin():
            left, right = names(relation.left), names(relation.right)
            tests = [text_of(each, [*left, *right]) for each in conjuncts(relation.residual)]
            return {
                "step": "sub-query",
                "kind": relation.kind.lower(),
                "condition": [f"{left[one]} = {right[other]}" for one, other in relation.keys] + tests,
                "left columns": typed(relation.left),
                "right columns": typed(relation.right),
                "time to live": duration(relation.ttl_ms),
            }
        case Over():
            own = names(relation.input)
            return {
                "step": "over",
                "keys": [own[each] for each in relation.keys],
                "order": own[relation.time],
                "functions": [_call(each, own) for each in relation.calls],
                "columns": typed(relation.input),
            }
    return {"step": more_described(relation, names)[0].lower()}


def _mark(lookup: SubqueryJoin, left: list[str]) -> str:
    if lookup.text == "EXISTS":
        return "EXISTS (query)"
    return f"{left[lookup.keys[-1][0]]}{IN_QUERY}"


def _lookup(lookup: SubqueryJoin, names: Names) -> list[str]:
    left, right = names(lookup.left), names(lookup.right)
    pairs = " and ".join(f"{left[one]} = {right[other]} of the query" for one, other in lookup.keys)
    match lookup.kind:
        case "SEMI":
            lines = [f"Semi join on {pairs}, append-only", f"keeps rows for which {lookup.text} (query) is true"]
        case "MARK":
            lines = [f"Look up on {pairs}, once when the inputs end", f"adds {_mark(lookup, left)}"]
        case _:
            on = f" on {pairs}" if pairs else ""
            added = ", ".join(right[each] for each in lookup.values)
            lines = [f"Look up{on}, once when the inputs end", f"adds {added}, NULL if there is no row"]
    if lookup.residual is not None:
        lines += [f"where {text_of(each, [*left, *right])}" for each in conjuncts(lookup.residual)]
    if lookup.keys:
        lines.append(f"shuffles both sides by {', '.join(dict.fromkeys(left[one] for one, _ in lookup.keys))}")
    else:
        lines.append("sends the query's row to all workers")
    if lookup.kind == "SEMI" and lookup.ttl_ms:
        lines.append(f"a row waits {duration(lookup.ttl_ms)} for a partner, if an input does not end")
    elif lookup.kind == "SEMI":
        lines.append("needs inputs that end, or the setting 'table.exec.state.ttl'")
    return lines


def _over(over: Over, names: Names) -> list[str]:
    own = names(over.input)
    keys = ", ".join(own[each] for each in over.keys)
    lines = [f"Over {keys or 'all rows'} in order of {own[over.time]}, append-only, final at the watermark"]
    lines += [_call(each, own) for each in over.calls]
    lines.append(f"shuffles by {keys or 'nothing'}, keeps {_kept(over)} of each key{_ttl(over)}")
    return lines


def _kept(over: Over) -> str:
    kept = []
    rows = [each.preceding for each in over.calls if each.unit == "ROWS" and each.preceding is not None]
    spans = [each.preceding for each in over.calls if each.unit == "RANGE" and each.preceding is not None]
    if rows:
        kept.append(counted(max(rows), "row"))
    if spans:
        kept.append(f"the rows of {_back(max(spans))}")
    if any(each.preceding is None for each in over.calls):
        kept.append("partial results")
    return " and ".join(kept)


def _ttl(over: Over) -> str:
    return f", for {duration(over.ttl_ms)} after its last row" if over.ttl_ms and not ends_by_itself(over) else ""


def _call(over: OverCall, names: list[str]) -> str:
    call = over.call
    argument = "*" if call.argument is None else names[call.argument]
    if call.name == "LAG":
        other = "" if over.default is None else f", {names[over.default]}"
        return f"LAG({argument}, {over.preceding}{other})"
    only = "" if call.condition is None else f" FILTER (WHERE {names[call.condition]})"
    size = over.preceding
    if size is None:
        frame = f"{over.unit} UNBOUNDED PRECEDING"
    elif not size:
        frame = f"{over.unit} CURRENT ROW"
    else:
        frame = f"ROWS {size} PRECEDING" if over.unit == "ROWS" else f"RANGE {_back(size)} PRECEDING"
    return f"{call.name}({argument}){only} OVER ({frame})"


def _back(micros: int) -> str:
    whole = duration(micros // 1000) if micros >= 1000 else ""
    return " ".join(filter(None, [whole, f"{micros % 1000} µs" if micros % 1000 else ""])) or duration(0)


def _sorted(relation: Sorted, names: Names) -> list[str]:
    own = names(relation.input)
    keys = [order_text(each, own) for each in relation.keys]
    head = f"Order by {', '.join(keys)}" if keys else "Limit"
    if relation.limit is not None:
        head += f", the first {relation.limit}" if keys else f" to {counted(relation.limit, 'row')}"
    if relation.offset:
        head += f" after {relation.offset}"
    lines = [f"{head}, once when the input ends"]
    if relation.limit is None:
        lines.append(f"shuffles all rows to one worker, {MOST_SORTED:,} at most")
    else:
        lines.append(f"shuffles the first {relation.limit + relation.offset} of each bundle to one worker")
    return lines
