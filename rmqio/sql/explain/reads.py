"""The lines of EXPLAIN about a read: what the broker filters, what bounds it, and what statements share."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.compile.description import Fragment, FromTable, Step, ToRows
from rmqio.sql.compile.shared import first_steps, on_common_columns, shared_expressions
from rmqio.sql.planning.plan import Relation, Scan
from rmqio.sql.planning.pushdown import Use, pushed_of, uses_of
from rmqio.sql.secret_options import masked_value
from rmqio.sql.text import text_of


@dataclass(slots=True)
class Reads:
    """The reads of a job.

    Args:
      plans: the plans of the job.
    """

    plans: Sequence[Relation]
    _uses: list[Use] = field(default_factory=list)
    _shown: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._uses = uses_of(self.plans)

    def lines(self, scan: Scan) -> list[str]:
        """Returns lines about the read of a table. Facts that its statements share are stated once."""
        uses = [each for each in self._uses if each.scan.table is scan.table]
        if id(scan.table) in self._shown:
            return ["is read and decoded once: see above"]
        self._shown.add(id(scan.table))
        shared = _shared(uses) if len(uses) > 1 else []
        return [*_filtered(scan.table, uses), *_bounds(scan.table, uses), *shared]


def _filtered(table: Table, uses: Sequence[Use]) -> list[str]:
    pushed = pushed_of(table, uses)
    tag = pushed.expression if pushed.expression is not None else table.options.tag
    if pushed.selector is None and tag is not None:
        return [f"the broker filters by tag: {masked_value(tag)}"]
    condition = table.options.sql if pushed.selector is None else pushed.selector.text
    return [] if condition is None else [f"the broker filters by SQL92: {masked_value(condition, 'sql')}"]


def _bounds(table: Table, uses: Sequence[Use]) -> list[str]:
    options, pushed = table.options, pushed_of(table, uses)
    lines = []
    low = pushed.start_ms if options.start is None or options.start.kind in ("earliest", "timestamp") else None
    if options.start is not None and options.start.kind == "timestamp":
        low = max(options.start.timestamp_ms, low or 0)
        lines.append(f"begins with what was stored at {_moment(low)}")
    elif low is not None:
        if options.start is not None:
            lines.append(f"begins with what was stored at {_moment(low)}")
        else:
            lines.append(f"with --start=earliest, begins with what was stored at {_moment(low)}")
    elif options.start is not None:
        lines.append(f"begins at {_START.get(options.start.kind, options.start.kind)}")
    high = pushed.stop_ms
    if options.end_ms is not None:
        lines.append(f"ends with what was stored before {_moment(min(options.end_ms, high or options.end_ms))}")
    elif high is not None:
        lines.append(f"with --stop, ends with what was stored before {_moment(high)}")
    return lines


_START = {"group_offsets": "the offsets of its group"}


def _moment(milliseconds: int) -> str:
    """The time in UTC, without a fraction of zeros."""
    try:
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return f"{moment.isoformat(' ', 'milliseconds').removesuffix('.000')} UTC"


def _shared(uses: Sequence[Use]) -> list[str]:
    fragments = [_fragment(each) for each in uses]
    _, columns, together = on_common_columns(fragments)
    names = [each.name for each in columns]
    lines = [f"is read and decoded once for the {len(uses)} that read it: {', '.join(names) or 'no column'}"]
    found = shared_expressions(first_steps(together))
    lines += [f"computes once for all: {text_of(each, names)}" for each in found]
    return lines


def _fragment(use: Use) -> Fragment:
    columns: tuple[Column, ...] = use.scan.columns
    steps = () if use.projections is None else (Step(use.condition, use.projections),)
    return Fragment(FromTable(use.scan.table, columns), steps, ToRows())
