"""EXPLAIN of relations whose rows change, and of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rmqio.sql.analysis.ranks.forms import Form, form_of, is_by_arrival, stated_order
from rmqio.sql.analysis.sinks.endings import ends_by_itself
from rmqio.sql.analysis.sinks.upserts import Kind, calcs, check_sink, kind_of, source_of
from rmqio.sql.constant_text import duration
from rmqio.sql.errors import Refusal
from rmqio.sql.planning.plan import Aggregate, Calc, Emit, Rank, Sink

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
    lines.append(f"shuffles by {', '.join(keys) or 'nothing'}, {_kept(rank, kind)}")
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


def _kept(rank: Rank, kind: Kind) -> str:
    rows = "a row" if rank.limit == 1 else f"{rank.limit} rows"
    if kind.groups is not None:
        if not rank.ttl_ms:
            return "keeps all groups forever"
        return f"keeps the first ones, and all other groups for {duration(rank.ttl_ms)} after their last change"
    if form_of(rank) is Form.WINDOW or _is_once(rank, form_of(rank)):
        return f"keeps {rows} of each until then"
    if form_of(rank) is not Form.UPDATES:
        return f"keeps of each that it was there, {_ttl(rank, 'after it')}"
    return f"keeps {rows} of each, {_ttl(rank, 'after its last one')}"


def _ttl(rank: Rank, since: str) -> str:
    return f"for {duration(rank.ttl_ms)} {since}" if rank.ttl_ms else "forever ('table.exec.state.ttl' = 0)"
