"""EXPLAIN of functions over whole partitions."""

from __future__ import annotations

from rmqio.sql.planning.plan import SortKey
from rmqio.sql.planning.relations import Analytic, AnalyticCall


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
