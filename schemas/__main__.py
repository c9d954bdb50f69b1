"""`python -m rmqio.schemas`: checks whether the schemas of a folder (`SUBJECT.vN.avsc`) can follow each other, or lists
them.

`check` prints each difference as a line on standard output: `order v2 cannot read v1: Order.total: ...`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rmqio.errors import LocalError, RmqioError
from rmqio.serde.avro.compatibility import Level, check, parse
from rmqio.serde.registry import FolderRegistry, fingerprint


class _Version(NamedTuple):
    number: int
    schema: Any
    full_name: str
    fingerprint: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 success, 1 incompatible versions, 2 wrong usage or a file that is not a schema."""
    given = _parser().parse_args(arguments)
    try:
        subjects = _read(given.folder)
    except RmqioError as error:
        print(f"rmqio.schemas: {error}", file=sys.stderr)
        return 2
    return _list(subjects) if given.command == "list" else _check(subjects, Level(given.level))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rmqio.schemas",
        description="Avro schemas in files SUBJECT.vN.avsc, where N counts the versions of a subject.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser(
        "check", help="compare each version of a subject with the earlier ones; exit status 1 if one cannot follow"
    )
    checking.add_argument(
        "--level",
        type=str.lower,
        choices=[level.value for level in Level],
        default=Level.BACKWARD_TRANSITIVE.value,
        help="what a new version must be able to do, as Confluent's registry names it (default: %(default)s)",
    )
    listing = commands.add_parser("list", help="show subject, version, full name and fingerprint (CRC-64-AVRO) of each")
    for command in (checking, listing):
        command.add_argument(
            "folder",
            nargs="?",
            type=Path,
            default=Path(__file__).parent,
            metavar="FOLDER",
            help="where the files are (default: this package's own)",
        )
    return parser


def _read(folder: Path) -> dict[str, list[_Version]]:
    """Return every subject's versions, ascending. Raises `RmqioError`, which names the file that is not a schema."""
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


def _check(subjects: dict[str, list[_Version]], level: Level) -> int:
    failed = False
    for subject, versions in subjects.items():
        schemas = [version.schema for version in versions]
        numbers = [version.number for version in versions]
        for index, new in enumerate(schemas):
            if why := _refused(new):
                print(f"{subject} v{numbers[index]} cannot be read or written here: {why}")
                failed = True
            for path, reason in check(new, schemas[:index], level, versions=numbers[: index + 1]):
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


if __name__ == "__main__":
    sys.exit(main())
