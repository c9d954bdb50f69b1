"""The options of a program that adds columns of a table of files to its elements."""

from __future__ import annotations

import argparse
import glob
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqio.command_line.arguments import parse_interval
from rmqio.errors import LocalError

if TYPE_CHECKING:
    from rmqio.enrich.definition import Table
    from rmqio.enrich.transform import Enrich

_CSV: Final = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst", ".tsv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command line; `from_arguments` reads them."""
    group = parser.add_argument_group("columns of a table", "they are added to each event")
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


class _Lookup(NamedTuple):
    """A table, and what of it is added to an event."""

    table: Table
    fields: dict[str, str]
    """Columns of the key, by fields of the event."""
    columns: list[str] | None


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raises `LocalError` for options that describe no table, or files that this machine does not have."""
    _lookup(arguments)
    for path in arguments.enrich or ():
        if arguments.runner == "DirectRunner" and "://" not in path and not glob.glob(path):
            raise LocalError(f"--enrich: there is no file {path}")


def from_arguments(arguments: argparse.Namespace, **dead_letters: Any) -> Enrich | None:
    """The transform of batches that the options describe; None: there are none. Raises `LocalError`.

    `dead_letters`: `dead_letter_topic` and what belongs to it, as `Enrich` takes them.
    """
    if (lookup := _lookup(arguments)) is None:
        return None
    from rmqio.enrich.transform import Enrich

    return Enrich(
        *lookup,
        prefix=arguments.enrich_prefix,
        refresh_s=arguments.enrich_refresh_s,
        batches=True,
        **dead_letters,
    )


def _lookup(arguments: argparse.Namespace) -> _Lookup | None:
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
    return _Lookup(_table(arguments), fields, columns)


def _table(arguments: argparse.Namespace) -> Table:
    from rmqio.enrich.definition import Table

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
