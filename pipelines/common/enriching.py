"""The options of a job that look up columns of its events in a table of files."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqio.errors import LocalError

if TYPE_CHECKING:
    from rmqio.enrich import Enrich, Table

_CSV: Final = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst", ".tsv")


def add_enrich_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    group = parser.add_argument_group("columns of a table", "they are added to each event before the rules see it")
    add = group.add_argument
    add("--enrich", action="append", metavar="FILES", help="Parquet, or CSV with a first line; can be repeated")
    add(
        "--enrich_key",
        action="append",
        metavar="FIELD[=COLUMN]",
        help="the field of the event that is the table's key, and the column if it has another name; can be repeated",
    )
    add("--enrich_columns", metavar="A,B", help="the columns to add. Default: all but the key")
    add("--enrich_prefix", default="", metavar="TEXT", help="a prefix for the names of the added columns")
    add("--enrich_types", metavar="A=int64,...", help="types of CSV columns, by Arrow's names. Default: text")
    add(
        "--enrich_refresh_s",
        type=parse_interval,
        metavar="SECONDS",
        default=3600.0,
        help="how old the table may be, in seconds. Default: 3600",
    )
    add(
        "--enrich_cache_dir",
        metavar="FOLDER",
        help="the folder for the table, on a local disk. Default: in the user's cache",
    )


class Lookup(NamedTuple):
    """A table, and what of it is added to an event."""

    table: Table
    fields: dict[str, str]
    """Columns of the key, by fields of the event."""
    columns: list[str] | None


def lookup_of(arguments: argparse.Namespace) -> Lookup | None:
    """Return what the options describe, without Beam; None: there are none. Raises `LocalError`."""
    if not arguments.enrich:
        for name in ("enrich_key", "enrich_columns", "enrich_prefix", "enrich_types", "enrich_cache_dir"):
            if getattr(arguments, name):
                raise LocalError(f"--{name} needs --enrich, the files of the table")
        return None
    if not arguments.enrich_key:
        raise LocalError("--enrich needs --enrich_key, the field of the event that is the table's key")
    fields = {}
    for each in arguments.enrich_key:
        field, _, column = each.partition("=")
        fields[field] = column or field
    columns = None if arguments.enrich_columns is None else _parts(arguments.enrich_columns)
    return Lookup(_table(arguments), fields, columns)


def enrich_of(arguments: argparse.Namespace, **letters: Any) -> Enrich | None:
    """Return the transform for batches that the options describe; None: there are none. Raises `LocalError`."""
    if (lookup := lookup_of(arguments)) is None:
        return None
    from rmqio.enrich import Enrich

    return Enrich(
        *lookup,
        prefix=arguments.enrich_prefix,
        refresh_s=arguments.enrich_refresh_s,
        batches=True,
        **letters,
    )


def parse_interval(text: str) -> float:
    """Parse a number of seconds above 0."""
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return found


def _table(arguments: argparse.Namespace) -> Table:
    from rmqio.enrich import Table

    kept = {} if arguments.enrich_cache_dir is None else {"cache_dir": arguments.enrich_cache_dir}
    paths = arguments.enrich
    are_csv = [each.endswith(_CSV) for each in paths]
    if any(are_csv) and not all(are_csv):
        raise LocalError("--enrich names CSV and Parquet files: a table must have files of one format")
    if not all(are_csv):
        if arguments.enrich_types:
            raise LocalError("--enrich_types is for CSV: Parquet files contain their types")
        return Table.from_parquet(paths, **kept)
    types = {}
    for each in _parts(arguments.enrich_types or ""):
        name, is_pair, kind = each.partition("=")
        if not is_pair:
            raise LocalError(f"--enrich_types has {each!r}; it must be pairs such as id=int64")
        types[name] = kind
    return Table.from_csv(paths, types=types, delimiter="\t" if paths[0].endswith(".tsv") else ",", **kept)


def _parts(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
