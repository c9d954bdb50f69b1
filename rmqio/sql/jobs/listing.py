"""`rmqio sql ps`: the jobs as a table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from rmqio.command_line.output import GAP, cut, display_width, line_width, safe_line
from rmqio.sql.jobs.state import Status

_TITLES: Final = ("job", "state", "since", "restarts", "pid")
_INDENT: Final = "  "


def table(statuses: Sequence[Status]) -> str:
    """Returns the table. Below a job stands why its newest text does not run, and its last failure."""
    rows = [_TITLES, *map(_row, statuses)]
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    lines = [
        (" " * GAP).join(cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    for number in range(len(statuses), 0, -1):
        lines[number + 1 : number + 1] = _notes(statuses[number - 1])
    return "\n".join(each.rstrip() for each in lines)


def _row(status: Status) -> tuple[str, ...]:
    since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(status.since))
    return status.name, status.state, since, str(status.restarts), "-" if status.pid is None else str(status.pid)


def _notes(status: Status) -> Iterator[str]:
    for title, text in (("refused", status.refused), ("last error", status.error)):
        if text:
            first = text.splitlines()[0]
            yield _INDENT + cut(safe_line(f"{title}: {first}"), max(40, line_width() - len(_INDENT)))
