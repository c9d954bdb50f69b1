"""Nexmark's queries as texts: `queries/tables.sql`, and a file for each of q0 to q22."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("queries")
ALL: Final = tuple(f"q{number}" for number in range(23))
NOT_OF_STREAMS: Final = frozenset({"q4", "q6"})
"""Groups of rows that change, and OVER of such: refused if the input does not end."""
OF_STREAMS: Final = frozenset({"q12"})
"""By the clock: refused where the input ends."""
THAT_END: Final = tuple(name for name in ALL if name not in OF_STREAMS)
_TTL: Final = "SET 'table.exec.state.ttl' = '1 h';\n\n"
"""Joins without a bound in time need it, if the input does not end."""
SIDE_INPUT: Final = range(10_000)
"""The keys of query 13's file."""


def script(names: Collection[str], *, topic: str = "nexmark", side_input: Path | None = None) -> str:
    """Returns the text of a job with these queries.

    Args:
      names: of queries.
      topic: the topic of events; that of a query has the query's name behind it.
      side_input: the file that query 13 looks in, see `write_side_input`.
    """
    text = (FOLDER / "tables.sql").read_text("utf-8") + "\n" + _TTL
    text += "\n".join((FOLDER / f"{name}.sql").read_text("utf-8") for name in names)
    if side_input is not None:
        text = text.replace("'side_input.csv'", f"'{side_input}'")
    return text.replace("'topic' = 'nexmark", f"'topic' = '{topic}")


def write_side_input(file: Path) -> None:
    """Writes what query 13 looks up: a value for each remainder of an auction's id."""
    file.write_text("".join(f"{key},value-{key}\n" for key in SIDE_INPUT), "utf-8")
