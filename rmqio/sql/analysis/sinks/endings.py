"""Refuses statements that need inputs that end, at their place, if the inputs do not end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rmqio.sql.analysis.ranks.limits import WAY_OUT
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal
from rmqio.sql.planning.plan import Aggregate, Join, Origin, Relation, tables_of
from rmqio.sql.planning.relations import Analytic, Sorted, SubqueryJoin

GIVES_END: Final = "--stop latest, or 'endTime' of its tables, gives it an end"
Ends = Callable[[Relation], bool]
"""Whether all that a relation reads ends: then its rows come once."""


def table_ends(table: Table) -> bool:
    """Returns whether the read of a table ends by itself: files, databases, and topics with `endTime`."""
    return table.options.connector in (FILES, DATABASE) or table.options.end_ms is not None


def ends_by_itself(relation: Relation) -> bool:
    """Returns whether the tables that a relation reads say where they end."""
    return all(map(table_ends, tables_of(relation)))


def require_ends(relation: Relation, ends: Ends) -> None:
    """Raises `Refusal` for what needs inputs that end, in a relation whose inputs do not."""
    match relation:
        case Aggregate() if relation.origin is not None and relation.window is None and not ends(relation):
            raise not_ended(relation.origin)
        case Join() if relation.bound is None and not ends(relation):
            _check_join(relation)
        case SubqueryJoin() if not ends(relation):
            _check_endless(relation)
        case Analytic() if not ends(relation) and {each.call.name for each in relation.calls} == {"ROW_NUMBER"}:
            raise Refusal(
                f"ROW_NUMBER() of all rows would keep all of them: it needs {WAY_OUT}. {GIVES_END}", relation.span
            )
        case Analytic() if not ends(relation):
            raise Refusal(
                "this OVER needs an input that ends: without an end, it takes functions of rows before a row, in "
                f"ascending order of the time of WATERMARK FOR, all with one PARTITION BY. {GIVES_END}",
                relation.span,
            )
        case Sorted() if not ends(relation):
            what = "ORDER BY" if relation.keys else "LIMIT"
            why = "it could never say which row is the first" if relation.keys else "the job would have to end it"
            raise Refusal(f"{what} needs an input that ends, and this one does not: {why}. {GIVES_END}", relation.span)
    for each in relation.inputs():
        require_ends(each, ends)


def _check_join(join: Join) -> None:
    if join.kind != "INNER":
        raise Refusal(
            f"{join.kind} JOIN of rows that do not end: a row without a partner is emitted when none can arrive "
            "any more, and nothing says when. Bound the times (AND a.time BETWEEN b.time - INTERVAL '5' MINUTE AND "
            "b.time), join rows of windows by window_start and window_end, or let both inputs end: --stop latest, "
            "or 'endTime' of the tables",
            join.span,
        )
    if join.ttl_ms:
        return
    if not join.keys:
        raise Refusal(
            "CROSS JOIN keeps every row forever, for rows that may still arrive: say how long a row waits, with "
            f"SET 'table.exec.state.ttl' = '1 h' before it. {GIVES_END}",
            join.span,
        )
    way_out = join.way_out or "write JOIN ... ON with bounds of the times"
    raise Refusal(
        "this join keeps every row forever: say how long a row waits for its partners, with "
        f"SET 'table.exec.state.ttl' = '1 h' before it, or {way_out}. {GIVES_END}",
        join.span,
    )


def not_ended(origin: Origin) -> Refusal:
    """Returns the error of UNION, EXCEPT or INTERSECT over rows that do not end."""
    hint = "UNION ALL keeps duplicates" if origin.name == "UNION" else "IN and EXISTS with a query find partners"
    return Refusal(
        f"{origin.name} needs inputs that end, since it would keep all rows: {GIVES_END}; rows with window_start and "
        f"window_end are compared by window, and {hint}",
        origin.span,
    )


def _check_endless(lookup: SubqueryJoin) -> None:
    if lookup.kind != "SEMI":
        what = {"IN": "NOT IN, or IN in a larger condition,", "EXISTS": "NOT EXISTS, or EXISTS in a larger condition,"}
        subject = what.get(lookup.text, "a sub-query as a value")
        becomes = "false" if lookup.text in what else "another one"
        raise Refusal(
            f"{subject} needs inputs that end: while rows can come, it can become {becomes}. {GIVES_END}; IN and "
            "EXISTS joined by AND in WHERE need none, and a dimension join (FOR SYSTEM_TIME AS OF) looks up what is "
            "there now",
            lookup.span,
        )
    if not lookup.ttl_ms:
        raise Refusal(
            f"{lookup.text} with a query keeps every row forever, for partners that may still arrive: say how long a "
            "row waits, with SET 'table.exec.state.ttl' = '1 h' before it",
            lookup.span,
        )
