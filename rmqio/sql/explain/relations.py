"""EXPLAIN of single relations: joins, ranks, functions over partitions, and relations whose rows change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rmqio.errors import counted
from rmqio.sql.analysis.sinks import Kind, calcs, check_sink, kind_of, source_of
from rmqio.sql.errors import Refusal
from rmqio.sql.expressions import IN_QUERY, conjuncts
from rmqio.sql.planning.checks import ends_by_itself
from rmqio.sql.planning.plan import (
    SAME_WINDOW,
    Aggregate,
    Calc,
    Emit,
    Interval,
    Join,
    Rank,
    Relation,
    SameWindow,
    Sink,
    SortKey,
    Window,
)
from rmqio.sql.planning.ranks import Form, form_of, is_by_arrival, stated_order
from rmqio.sql.planning.relations import (
    MOST_SORTED,
    Analytic,
    AnalyticCall,
    Over,
    OverCall,
    Repeated,
    Sorted,
    SubqueryJoin,
)
from rmqio.sql.planning.watermarks import bucket_us, kept_us
from rmqio.sql.text import duration, text_of

# EXPLAIN of functions over whole partitions.


def analytic_lines(analytic: Analytic, names: list[str]) -> list[str]:
    """Returns the lines of a relation. `names`: the columns of its input."""
    keys = ", ".join(names[each] for each in analytic.keys)
    order = ", ".join(order_text(each, names) for each in analytic.order)
    lines = [f"Over {keys or 'all rows'}{f' in order of {order}' if order else ''}, once when the input ends"]
    lines += [call_text(each, names) for each in analytic.calls]
    lines.append(f"shuffles by {keys or 'nothing'}, one worker has all rows of a key")
    return lines


def order_text(key: SortKey, names: list[str]) -> str:
    """Returns `amount DESC NULLS LAST`."""
    nulls = "" if key.nulls_first != key.is_descending else f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
    return f"{names[key.column]}{' DESC' if key.is_descending else ''}{nulls}"


def call_text(given: AnalyticCall, names: list[str]) -> str:
    """Returns `SUM(amount) OVER (ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)`."""
    call = given.call
    argument = "" if call.argument is None else names[call.argument]
    if call.name in ("LAG", "LEAD"):
        other = "" if given.default is None else f", {names[given.default]}"
        return f"{call.name}({argument}, {given.number}{other})"
    if call.name == "NTILE":
        return f"NTILE({given.number})"
    if call.name in ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST"):
        return f"{call.name}()"
    only = "" if call.condition is None else f" FILTER (WHERE {names[call.condition]})"
    frame = f"{given.unit} BETWEEN {_bound(given.start, 'PRECEDING')} AND {_bound(given.end, 'FOLLOWING')}"
    return f"{call.name}({argument or '*'}){only} OVER ({frame})"


def _bound(rows: int | None, unbounded: str) -> str:
    if rows is None:
        return f"UNBOUNDED {unbounded}"
    if not rows:
        return "CURRENT ROW"
    return f"{abs(rows)} {'FOLLOWING' if rows > 0 else 'PRECEDING'}"


# EXPLAIN of joins: their kind, keys, bound and state.


def column_names(join: Join) -> list[str]:
    """Returns the columns of a join as text, with the table's name where another column has the same name."""
    names = [each.name for each in join.fields]
    computed = [*_key_texts(join.left), *_key_texts(join.right)]
    return [
        text or (f"{each.table}.{each.name}" if each.table and names.count(each.name) > 1 else each.name)
        for each, text in zip(join.fields, computed, strict=True)
    ]


def _key_texts(side: Relation) -> list[str]:
    """The texts of keys that are computed, by column; empty: the column has a name."""
    if not isinstance(side, Calc):
        return [""] * len(side.fields)
    names = [each.name for each in side.input.fields]
    return [
        text_of(expression, names) if each.name.startswith("KEY$") else ""
        for each, expression in zip(side.fields, side.projections, strict=True)
    ]


def window_line(window: Window, names: Sequence[str]) -> str:
    """Returns `hop window of 1 min every 30 s by ts`."""
    if window.kind == SAME_WINDOW:
        return "the window that the rows are in, until the watermark passes its end"
    return f"{_window(window)} by {'the time of the worker' if window.is_processing else names[window.time]}"


def _window(window: Window) -> str:
    slide = f" every {duration(window.slide_us // 1000)}" if window.slide_us != window.size_us else ""
    zone = f" in {window.local_zone}" if window.local_zone else ""
    return f"{window.kind.lower()} window of {duration(window.size_us // 1000)}{slide}{zone}"


def join_lines(join: Join) -> list[str]:
    """Returns what a join does, in lines."""
    names = column_names(join)
    width = len(join.left.fields)
    keys = " and ".join(f"{names[one]} = {names[width + other]}" for one, other in join.keys)
    kind = {Interval: "interval join", SameWindow: "window join"}.get(type(join.bound), "join")
    lines = [f"{join.kind.capitalize()} {kind} on {keys}, append-only" if keys else "Cross join, append-only"]
    if join.residual is not None:
        lines += [f"where {text_of(each, names)}" for each in conjuncts(join.residual)]
    if not keys:
        if not join.ttl_ms:
            return [*lines, "sends the right side to all workers, and needs inputs that end"]
        kept = f"keeps each row for {duration(join.ttl_ms)}, or forever if its input ends"
        return [*lines, "sends the right side to all workers", kept]
    lines.append(f"shuffles both sides by {', '.join(dict.fromkeys(names[one] for one, _ in join.keys))}")
    match join.bound:
        case Interval() as bound:
            lines += _interval(join, bound, names[bound.left_time], names[width + bound.right_time])
        case SameWindow(window):
            lines.append(f"joins the rows of a {_window(window)} when the watermark passes its end, and forgets them")
        case _ if join.kind != "INNER":
            lines.append("keeps all rows, and gives those without a partner when both inputs end: they must end")
        case _:
            kept = f"keeps each row for {duration(join.ttl_ms)}, or forever if its input ends"
            lines.append(kept if join.ttl_ms else "keeps all rows until both inputs end: they must end")
    return lines


def _interval(join: Join, bound: Interval, left: str, right: str) -> list[str]:
    size, kept = bucket_us(join.kind, bound), kept_us(join.kind, bound) - 1000
    lines = [f"{right} is {_distance(bound, left)}"]
    lines.append(
        f"keeps rows for up to {duration((size + kept) // 1000)} of event time, in pieces of {duration(size // 1000)}"
    )
    if join.kind != "INNER":
        lines.append("emits a row without a partner when its piece is dropped")
    return lines


def _distance(bound: Interval, left: str) -> str:
    if bound.lower_us == bound.upper_us == 0:
        return left
    ends = [bound.lower_us, bound.upper_us]
    if ends[0] == ends[1]:
        return f"{_after(ends[0])} {left}"
    return f"from {_after(ends[0])} to {_after(ends[1])} {left}"


def _after(micros: int) -> str:
    whole = round(micros, -3)
    than = "" if whole == micros else "less than " if abs(micros) < abs(whole) else "more than "
    return f"{than}{duration(abs(whole) // 1000)} {'before' if micros < 0 else 'after'}"


# EXPLAIN of relations whose rows change, and of ranks.

ONCE: Final = "once when the input ends"


def sink_kind(sink: Sink) -> tuple[str, list[str]]:
    """Returns the kind of what a table gets, of inputs as they are, and what more there is to say."""
    try:
        kind = check_sink(sink, ends_by_itself)
    except Refusal as error:
        reason = error.message.removeprefix(f"INSERT INTO {sink.table.name}: ")
        return "append-only", [f"if the inputs do not end, refused: {reason}"]
    if kind.changing is None:
        return "append-only", []
    return f"upsert by {', '.join(sink.table.primary_key)}", _deletes(sink, kind)


def _deletes(sink: Sink, kind: Kind) -> list[str]:
    assert kind.changing is not None
    chain = calcs(sink.input, kind.changing)
    is_filtered = any(each.condition is not None for each in chain)
    is_by_rows = isinstance(kind.changing, Rank) and (
        kind.groups is not None or _is_by_rows(sink, kind.changing, chain)
    )
    if isinstance(kind.changing, Rank) and any(
        each.metadata is not None and each.metadata.key == "topic" for each in sink.columns
    ):
        return ["deletes rows that are no longer there, or in another topic, by tombstones, messages without a body"]
    if is_filtered or is_by_rows:
        return ["deletes rows that are no longer there by tombstones, messages without a body"]
    return []


def _is_by_rows(sink: Sink, rank: Rank, chain: Sequence[Calc]) -> bool:
    """Whether a row of a rank can leave its place in the table: the key has columns of the row, and not its number."""
    names = [each.name for each in sink.columns]
    keys = {source_of(names.index(each), list(chain)) for each in sink.table.primary_key if each in names}
    return not rank.is_numbered and not keys <= {"constant", *rank.keys}


def group_kind(aggregate: Aggregate, keys: Sequence[str]) -> str:
    """Returns the kind of a group's rows."""
    if aggregate.window is None:
        is_changing = aggregate.calls and not ends_by_itself(aggregate)
        return f"{ONCE}, else upsert by key" if is_changing else ONCE
    if aggregate.window.is_processing:
        return "append-only, final when its time is over"
    if aggregate.emit is None:
        return "append-only, final at the watermark"
    return f"upsert by key ({', '.join([*keys, 'window_start', 'window_end'])})"


def group_kept(aggregate: Aggregate) -> str:
    """Returns what a group keeps, and for how long."""
    is_changing = aggregate.window is None and aggregate.origin is None and not ends_by_itself(aggregate)
    ttl = f"for {duration(aggregate.ttl_ms)} after the last row of each" if aggregate.ttl_ms else "forever"
    return f"keeps partial results until then{f', or {ttl}' if is_changing else ''}"


def emit_lines(emit: Emit | None) -> list[str]:
    """Returns when the rows of a window are given."""
    if emit is None:
        return []
    lines = []
    if emit.early_ms is not None:
        lines.append(f"emits its row before the watermark {_every(emit.early_ms)}")
    if emit.late_ms is not None:
        lines.append(f"emits it after the watermark {_every(emit.late_ms)}, for {duration(emit.lateness_ms)}")
    return lines


def _every(delay_ms: int) -> str:
    return f"{duration(delay_ms)} after a change" if delay_ms else "with every change"


def rank_lines(rank: Rank, names: Sequence[str]) -> list[str]:
    """Returns what EXPLAIN says of a rank. `names`: the columns of its input."""
    keys = [names[each] for each in rank.keys]
    by = f" by {', '.join(keys)}" if keys else ""
    kind = kind_of(rank)
    rows = "First row" if rank.limit == 1 else f"First {rank.limit} rows"
    lines = [f"{rows}{by}, {_rank_kind(rank, kind, keys)}"]
    order = []
    for each in stated_order(rank):
        nulls = "" if each.nulls_first != each.is_descending else f" NULLS {'FIRST' if each.nulls_first else 'LAST'}"
        name = "arrival" if is_by_arrival(rank) else names[each.column]
        order.append(f"{name}{' DESC' if each.is_descending else ''}{nulls}")
    lines.append(f"ordered by {', '.join(order)}")
    lines.append(f"shuffles by {', '.join(keys) or 'nothing'}, {_rank_kept(rank, kind)}")
    return lines


def _rank_kind(rank: Rank, kind: Kind, keys: list[str]) -> str:
    form = form_of(rank)
    if kind.refused or kind.changing is not None:
        more = "the number" if rank.is_numbered else "columns of the row"
        key = [*keys, *([more] if rank.limit > 1 else [])]
        return f"{ONCE}, else upsert by key ({', '.join(key)})"
    if _is_once(rank, form):
        return ONCE
    return "append-only, when it comes" if form is Form.SEEN else "append-only, final at the watermark"


def _is_once(rank: Rank, form: Form) -> bool:
    """Whether the input ends, and the rows come then; the first row by time comes with the watermark all the same."""
    return form in (Form.SEEN, Form.UPDATES) and ends_by_itself(rank)


def _rank_kept(rank: Rank, kind: Kind) -> str:
    rows = "a row" if rank.limit == 1 else f"{rank.limit} rows"
    if kind.groups is not None:
        if not rank.ttl_ms:
            return "keeps all groups forever"
        return f"keeps the first ones, and all other groups for {duration(rank.ttl_ms)} after their last change"
    if form_of(rank) is Form.WINDOW or _is_once(rank, form_of(rank)):
        return f"keeps {rows} of each until then"
    if form_of(rank) is not Form.UPDATES:
        return f"keeps of each that it was there, {_rank_ttl(rank, 'after it')}"
    return f"keeps {rows} of each, {_rank_ttl(rank, 'after its last one')}"


def _rank_ttl(rank: Rank, since: str) -> str:
    return f"for {duration(rank.ttl_ms)} {since}" if rank.ttl_ms else "forever ('table.exec.state.ttl' = 0)"


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
