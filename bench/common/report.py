"""Results as text, Markdown and JSON, and a line of progress."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench.common.config import BROKER_CONFIG, BROKER_HEAP_MB, TOPIC_QUEUES
from bench.common.rows import Row

BEGIN: Final = "<!-- results: written by python -m bench --markdown -->"
END: Final = "<!-- end of results -->"
BUSY_WARNING: Final = (
    "**The machine was busy with other work (load average {:.1f} before the start). These figures only show that the "
    "benchmark runs.**"
)
_BUSY: Final = 0.5
_COLUMNS: Final = ("case", "bytes", "ours", "peer", "ratio", "target", "", "what")


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Report:
    """All of one run."""

    plan: Mapping[str, Any]
    load_at_start: float = 0.0
    """The machine's load average before anything of ours ran."""
    rows: list[Row] = field(default_factory=list)
    java_settings: dict[int, str] = field(default_factory=dict)
    java_search: dict[int, list[tuple[str, float]]] = field(default_factory=dict)

    @property
    def is_busy(self) -> bool:
        """Whether the machine had other work, so that the figures mean little."""
        return self.load_at_start > _BUSY

    @property
    def missed(self) -> list[Row]:
        """The rows that do not meet their target."""
        return [row for row in self.rows if row.met is False]

    def write_json(self, path: Path) -> None:
        content = {
            "machine": machine(),
            "settings": settings(),
            "plan": dict(self.plan),
            "load_average_at_start": self.load_at_start,
            "java_pull_settings": self.java_settings,
            "java_pull_search": self.java_search,
            "rows": [asdict(row) for row in self.rows],
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def write_markdown(self, path: Path) -> None:
        """Replace what stands between the two marks of an existing file, or make a file of it."""
        put_between(path, BEGIN, END, self.markdown())

    def markdown(self) -> str:
        lines = [_prose(f"Machine: {machine_text()}."), "", _prose(f"Settings: {settings_text(self.plan)}."), ""]
        if self.is_busy:
            lines += [BUSY_WARNING.format(self.load_at_start), ""]
        for size, chosen in self.java_settings.items():
            tried = self.java_search.get(size, [])
            lines += [
                _prose(
                    f"With {size} B messages, the fastest of the {len(tried)} settings tried for Java's consumer was "
                    f"{chosen}."
                ),
                "",
            ]
        lines += ["| " + " | ".join(_COLUMNS) + " |", "|---|--:|--:|--:|--:|--:|---|---|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(row)) + " |" for row in self.rows]
        lines.append("")
        return "\n".join(lines)


def _prose(text: str) -> str:
    return textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False)


def table(rows: Sequence[Row]) -> str:
    """A table for a terminal."""
    return aligned([_COLUMNS, *(_cells(row) for row in rows)], left={0, 6, 7})


def aligned(cells: Sequence[Sequence[str]], left: Collection[int]) -> str:
    """Lines of cells as columns, those of `left` aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def put_between(path: Path, begin: str, end: str, text: str) -> None:
    """Put Markdown between the two marks of a file, or make a file of it. Raises ValueError if a mark is missing."""
    block = f"{begin}\n\n{text}\n{end}"
    old = path.read_text(encoding="utf-8") if path.exists() else f"{begin}{end}\n"
    new, times = re.subn(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: block, old, flags=re.DOTALL)
    if times != 1:
        raise ValueError(f"{path} must contain the two marks {begin} and {end} once")
    path.write_text(new, encoding="utf-8")


def _cells(row: Row) -> tuple[str, ...]:
    pattern = "{:,.0f}" if row.ours.median >= 100 else "{:.1f}"
    verdict = {True: "met", False: "MISSED", None: ""}[row.met]
    return (
        row.case,
        str(row.size) if row.size else "",
        f"{row.ours.text(pattern)} {row.unit}",
        row.peer.text() if row.peer else "",
        row.ratio.text("{:.2f}") if row.ratio else "",
        row.target,
        verdict,
        row.note,
    )


def machine() -> dict[str, Any]:
    """Cores, memory and versions; nothing that names the machine or its owner."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "apache_beam": version("apache-beam"),
        "load_average_at_end": round(os.getloadavg()[0], 1),
    }


def machine_text() -> str:
    m = machine()
    return (
        f"{m['cores']} cores, {m['memory_gb']} GB, {m['system']} {m['architecture']}, Python {m['python']}, "
        f"Apache Beam {m['apache_beam']}; the broker and both sides share the cores; load average at the end "
        f"{m['load_average_at_end']}"
    )


def settings() -> dict[str, Any]:
    return {
        "rocketmq": "5.5.0",
        "broker_heap_mb": BROKER_HEAP_MB,
        "broker_config": dict(BROKER_CONFIG),
        "queues": TOPIC_QUEUES,
        "java_heap": "-Xms1g -Xmx2g",
    }


def settings_text(plan: Mapping[str, Any]) -> str:
    s = settings()
    config = ", ".join(f"{key}={value}" for key, value in s["broker_config"].items())
    return (
        f"RocketMQ {s['rocketmq']}, broker heap {s['broker_heap_mb']} MB, {config}; topics of {s['queues']} queues; "
        f"Java peer {s['java_heap']}; {plan['messages']:,} messages per run; "
        f"{plan['repeats']} timed repeats after {plan['warm_ups']} warm-ups; "
        f"sends in batches of {plan['batch']} with {plan['in_flight']} batches in flight"
    )
