"""Checks of plans as wholes: inputs that have to end, jobs that feed themselves, files that are not there."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rmqio.addresses import shown_url
from rmqio.security import CredentialsError, password_from
from rmqio.sql.catalog.connectors import DATABASE, FILES
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal, Span, SqlError
from rmqio.sql.planning.plan import Aggregate, Join, LookupJoin, Origin, Relation, Scan, Sink, tables_of
from rmqio.sql.planning.ranks import WAY_OUT
from rmqio.sql.planning.relations import Analytic, Sorted, SubqueryJoin

# Files, folders and passwords of this machine that plans name: what is wrong is told before Beam is imported.
#
# A file can be written, or go, while the job begins: what reads and writes them says it, too.


def require_files(plans: Iterable[Relation], *, runs_here: bool) -> None:
    """Raises `SqlError` for a file or a password that is not there or cannot be read, and a folder that takes no file.

    Args:
      runs_here: this machine also loads dimension tables and writes files. It always lists the files of other tables.
    """
    for each in plans:
        _require(each, runs_here)


def _require(relation: Relation, runs_here: bool) -> None:
    for each in relation.inputs():
        _require(each, runs_here)
    match relation:
        case Scan(table=table):
            _require_readable(f"the table {table.name} cannot be read", table)
            if runs_here:
                _require_database(f"the table {table.name} cannot be read", table)
        case LookupJoin() if runs_here:
            for table in _tables_of(relation.dimension):
                said = f"the dimension table {table.name} cannot be loaded"
                _require_readable(said, table)
                _require_database(said, table)
        case Sink() if runs_here:
            _require_writable(relation.table)


def _tables_of(relation: Relation) -> Iterable[Table]:
    if isinstance(relation, Scan):
        yield relation.table
    for each in relation.inputs():
        yield from _tables_of(each)


def _path_of(table: Table) -> str:
    """The path, if it is of this machine; else nothing."""
    path = table.options.of_connector.path
    return path if table.options.connector == FILES and "://" not in path else ""


def _require_readable(said: str, table: Table) -> None:
    path = _path_of(table)
    if not path or glob.has_magic(path):  # Beam's patterns are others than those of Python
        return
    if not os.path.exists(path):
        raise SqlError(f"{said}: there is no file {path}")
    if not os.access(path, os.R_OK):
        raise SqlError(f"{said}: {path}: Permission denied")


def _require_database(said: str, table: Table) -> None:
    """SQLite's file, and the password: other databases are servers, which are asked when the job runs."""
    options = table.options.of_connector
    try:
        password_from(options.password_env, options.password_file)
    except CredentialsError as error:
        raise SqlError(f"{said}: {error}") from None
    scheme, _, path = options.url.partition("?")[0].partition(":///")
    if scheme.partition("+")[0] == "sqlite" and not _is_made(path) and not os.path.exists(path):
        shown = f"table {options.table_name} of {shown_url(options.url)}"
        raise SqlError(f"{shown} cannot be read: there is no file {path}")


def _is_made(path: str) -> bool:
    """`file:` begins a URI of SQLite's own."""
    return path in ("", ":memory:") or path.startswith("file:")


def _require_writable(table: Table) -> None:
    path = _path_of(table)
    if not path:
        return
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    try:  # rights alone do not say it, as those of root on a file system that is only read
        with tempfile.TemporaryDirectory(prefix=".rmqio-", dir=folder):
            pass
    except OSError as error:
        raise SqlError(f"the table {table.name} cannot be written: {path}: {error.strerror}") from None


# Jobs that read what they write: each row would come back, for ever.


def feedback(sink: Sink, sinks: Sequence[Sink]) -> str:
    """Returns why the job would feed itself through the sink; empty: it would not, or the table allows it.

    Only topics count that are read without an end, directly or by the other statements of the job.
    """
    target = sink.table.options
    if target.topic is None or target.allows_feedback:
        return ""
    reached, pending = {target.topic}, [target.topic]
    while pending:
        topic = pending.pop()
        for each in sinks:
            if topic not in _read(each) or each.table.options.topic is None:
                continue
            if each is sink:
                return (
                    f"the job would feed itself: it reads the topic {target.topic}, and {sink.table.name} writes it. "
                    "Write another topic; or, if the rows that are written do not pass the query again, give "
                    f"{sink.table.name} 'sink.allow-feedback' = 'true'; or end the read by --stop or endTime"
                )
            if each.table.options.topic not in reached:
                reached.add(each.table.options.topic)
                pending.append(each.table.options.topic)
    return ""


def _read(sink: Sink) -> set[str | None]:
    tables = [each.options for each in tables_of(sink)]
    return {each.topic for each in tables if each.connector == "rocketmq" and each.end_ms is None}


# Tables that are written exactly once: one statement of a job writes them.


def require_one_writer(sink: Sink, others: Sequence[Sink], span: Span) -> None:
    """Raises `Refusal` if another statement commits the offsets by which the table's writer knows what it wrote."""
    options = sink.table.options
    for each in others:
        given = each.table.options
        if not (options.is_exactly_once and given.is_exactly_once):
            continue
        if (options.topic, options.producer_group) == (given.topic, given.producer_group):
            raise Refusal(
                f"{sink.table.name} is written exactly once, by the group {options.producer_group!r}, and another "
                "statement writes with that group: join their queries with UNION ALL, or write into a table of the "
                "same topic with another 'producerGroup'",
                span,
            )


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
