"""`rmqio schemas`: check whether the schemas of a folder (`SUBJECT.vN.avsc`) can follow each other, or list them.

`check` prints each difference as a line on standard output: `order v2 cannot read v1: Order.total: ...`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqio.command_line.parser import Parser
from rmqio.errors import LocalError, RmqioError

LEVELS: Final = (
    "none", "backward", "backward_transitive", "forward", "forward_transitive", "full", "full_transitive",
)  # fmt: skip
"""The names of `Level`. Its module needs fastavro, and `--help` must do without."""


class _Version(NamedTuple):
    number: int
    schema: Any
    full_name: str
    fingerprint: str


def run(given: argparse.Namespace) -> int:
    """Return the exit status: 0 success, 1 incompatible versions, 2 a file that is not a schema."""
    try:
        subjects = _read(given.folder)
    except (RmqioError, ImportError) as error:  # the second: without fastavro
        print(f"rmqio schemas: {error}", file=sys.stderr)
        return 2
    return _list(subjects) if given.command == "list" else _check(subjects, given.level)


def add_options(parser: Parser) -> None:
    """Add the commands."""
    parser.description = "Avro schemas in files SUBJECT.vN.avsc, where N counts the versions of a subject."
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    summary = "compare each version of a subject with the earlier ones"
    checking = commands.add_parser(
        "check",
        help=summary,
        description=f"{summary.capitalize()}. The exit status is 1 if a version cannot follow the one before it.",
    )
    checking.add_argument(
        "--level",
        type=str.lower,
        choices=LEVELS,
        default="backward_transitive",
        metavar="LEVEL",
        help="what a new version must be able to do, as Confluent's registry names it: "
        f"{', '.join(LEVELS)}; default: %(default)s",
    )
    summary = "show subject, version, full name and fingerprint (CRC-64-AVRO) of each"
    listing = commands.add_parser("list", help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    for command in (checking, listing):
        command.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of the files")
        command.set_defaults(parser=command)


def _read(folder: Path) -> dict[str, list[_Version]]:
    """Return every subject's versions, ascending. Raises `RmqioError`, which names the file that is not a schema."""
    from rmqio.serde.avro.compatibility import parse
    from rmqio.serde.registry import FolderRegistry, fingerprint

    registry = FolderRegistry(folder)
    subjects: dict[str, list[_Version]] = {}
    for subject in registry.subjects():
        for number in registry.versions(subject):
            text = registry.by_version(subject, number).schema
            try:
                schema = json.loads(text)
                version = _Version(number, schema, parse(schema).root, fingerprint(text).hex())
            except LocalError as error:
                raise LocalError(f"{folder / f'{subject}.v{number}.avsc'}: {error}") from error
            subjects.setdefault(subject, []).append(version)
    if not subjects:
        # A wrong folder must not pass for a good one.
        raise LocalError(f"{folder} holds no file SUBJECT.vN.avsc; name the folder of the schemas")
    return subjects


def _check(subjects: dict[str, list[_Version]], level: str) -> int:
    from rmqio.serde.avro.compatibility import Level, check

    failed = False
    for subject, versions in subjects.items():
        schemas = [version.schema for version in versions]
        numbers = [version.number for version in versions]
        for index, new in enumerate(schemas):
            if why := _refused(new):
                print(f"{subject} v{numbers[index]} cannot be read or written here: {why}")
                failed = True
            for path, reason in check(new, schemas[:index], Level(level), versions=numbers[: index + 1]):
                print(f"{subject} {path}: {reason}")
                failed = True
    if not failed:
        print(f"{sum(map(len, subjects.values()))} schemas of {len(subjects)} subjects: {level}")
    return int(failed)


def _refused(schema: Any) -> str | None:
    """Return why no serializer takes a valid schema, or None."""
    from rmqio.serde.avro.schema import AvroSchema  # needs fastavro, which has already read the schema

    try:
        AvroSchema(schema)
    except LocalError as error:
        return str(error).removeprefix("the given value ")
    return None


def _list(subjects: dict[str, list[_Version]]) -> int:
    rows = [
        (subject, f"v{version.number}", version.full_name, version.fingerprint)
        for subject, versions in subjects.items()
        for version in versions
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0
