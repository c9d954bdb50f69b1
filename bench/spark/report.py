"""Results as text, Markdown and JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench.common.report import BUSY_WARNING, aligned, machine, put_between
from bench.common.rows import Spread
from bench.spark.portable.jars import LOCK, spark_version
from bench.spark.rows import Row
from bench.spark.settings import HEAP_MB, MASTER

BEGIN: Final = "<!-- results: written by python -m bench.spark --markdown -->"
END: Final = "<!-- end of results of bench.spark -->"
_BUSY: Final = 0.5


@dataclass
class Report:
    """All of one run."""

    plan: Mapping[str, Any]
    load_at_start: float = field(default_factory=lambda: round(os.getloadavg()[0], 1))
    """The machine's load average before anything of ours ran."""
    rows: list[Row] = field(default_factory=list)

    @property
    def is_busy(self) -> bool:
        """Whether the machine had other work, so that the figures mean little."""
        return self.load_at_start > _BUSY

    @property
    def missed(self) -> list[Row]:
        """The rows that do not meet their target."""
        return [row for row in self.rows if not row.met]

    def write_json(self, path: Path) -> None:
        content = {
            "machine": machine() | {"pyspark": version("pyspark")},
            "peer": peer(),
            "plan": dict(self.plan),
            "load_average_at_start": self.load_at_start,
            "rows": [row.to_json() for row in self.rows],
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def write_markdown(self, path: Path) -> None:
        """Replace what stands between the two marks of an existing file, or make a file of it."""
        put_between(path, BEGIN, END, self.markdown())

    def markdown(self) -> str:
        m, p, plan = machine(), peer(), self.plan
        lines = [
            f"Machine: {m['cores']} cores, {m['memory_gb']} GB, {m['system']} {m['architecture']}; load average "
            f"{self.load_at_start} at the start and {m['load_average_at_end']} at the end.",
            "",
            f"Versions: Python {m['python']}, Beam {m['apache_beam']}; ours and plain PySpark on Spark "
            f"{version('pyspark')}; the peer's job server {p['job_server']} on Spark {p['spark']}.",
            "",
            f"Settings: {MASTER}, {HEAP_MB} MB for each JVM; {plan['repeats']} timed repeats after an untimed one.",
            "",
        ]
        if self.is_busy:
            lines += [BUSY_WARNING.format(self.load_at_start), ""]
        for cells in tables(self.rows):
            lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells[:1]]
            lines += ["|---" + "|--:" * (len(cells[0]) - 1) + "|"]
            lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells[1:]]
            lines.append("")
        return "\n".join(lines)


def peer() -> dict[str, Any]:
    """Returns the versions that Beam's side runs on."""
    return {"job_server": LOCK.name.removesuffix(".lock.json"), "spark": spark_version()}


def text(rows: Sequence[Row]) -> str:
    """Tables for a terminal."""
    return "\n\n".join(aligned(cells, left={0}) for cells in tables(rows))


def tables(rows: Sequence[Row]) -> list[list[tuple[str, ...]]]:
    """A table, with its header, for the rows that have the same sides."""
    by_sides: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        by_sides.setdefault(tuple(row.seconds), []).append(row)
    return [
        [("case", "work", *(f"{side}, s" for side in sides), "ratio", "target", ""), *map(_cells, group)]
        for sides, group in by_sides.items()
    ]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.case.title,
        row.what,
        *(Spread.of(seconds).text("{:.2f}") for seconds in row.seconds.values()),
        row.ratio.text("{:.2f}"),
        f">= {row.case.target:g}",
        "met" if row.met else "MISSED",
    )
