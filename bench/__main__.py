"""The command line: `python -m bench [names...]`."""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.client import alone
from bench.client.cases import CASES, JAVA_PULL, JavaSettings, best_java_settings, compare
from bench.client.lab import Lab
from bench.common.config import JAVA_CANDIDATES, Plan
from bench.common.report import BUSY_WARNING, Report, table
from bench.common.rows import Row
from bench.common.tally import BenchError

ALONE: Final[dict[str, Callable[[Lab], list[Row]]]] = {
    "start-up": alone.start_up,
    "memory": alone.memory,
    "idle": alone.idle,
    "latency": alone.latency,
}
NAMES: Final = (*(case.name for case in CASES), *ALONE)


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, Plan]:
    """Exits with status 2 for what does not fit."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="rmqio beside Java's official client, on one local broker, in alternating repeats.",
        epilog="Exit status: 0; 1 if the sides did unequal work or something failed; with --strict, 3 if a target was "
        "missed.",
    )
    parser.add_argument("names", nargs="*", metavar="name", help=f"a case: {', '.join(NAMES)}. Default: all")
    parser.add_argument("--messages", type=int, help=f"messages in each run. Default: {Plan().messages:,}")
    parser.add_argument(
        "--sync-messages", type=int, help=f"messages in each run of sync. Default: {Plan().sync_messages:,}"
    )
    parser.add_argument(
        "--memory-messages", type=int, help=f"messages in the case memory. Default: {Plan().memory_messages:,}"
    )
    parser.add_argument("--repeats", type=int, help=f"timed runs, after warm-ups. Default: {Plan().repeats}")
    parser.add_argument("--sizes", default="100,1024", help="sizes of the bodies in bytes. Default: %(default)s")
    parser.add_argument("--batch", type=int, help=f"messages per batch. Default: {Plan().batch}")
    parser.add_argument("--in-flight", type=int, help=f"batches in flight. Default: {Plan().in_flight}")
    parser.add_argument(
        "--runners", default="", help="more runners for the case latency, such as SparkRunner,FlinkRunner"
    )
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--strict", action="store_true", help="exit with 3 if a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to a file")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table into a page, between its marks")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.names) - set(NAMES))
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    sizes = tuple(int(size) for size in given.sizes.split(","))
    if min(sizes) < 12:
        parser.error("--sizes: a body needs at least 12 bytes, because it contains a number")
    plan = Plan.quick(sizes) if given.quick else Plan(sizes=sizes)
    changes = {
        name: getattr(given, name)
        for name in ("messages", "sync_messages", "memory_messages", "repeats", "batch", "in_flight")
        if getattr(given, name) is not None
    }
    runners = tuple(name for name in given.runners.split(",") if name)
    return given, dataclasses.replace(plan, runners=runners, **changes)


def run(names: Sequence[str], plan: Plan) -> Report:
    """Run the cases. Raises `BenchError`, `UnequalWork` among them; by then nothing is left running."""
    report = Report(plan.describe(), round(os.getloadavg()[0], 1))
    cases = [case for case in CASES if case.name in names]
    with Lab(plan) as lab:
        for size in plan.sizes if cases else ():
            java: JavaSettings = {}
            if any(case.peer == JAVA_PULL for case in cases):
                candidates = JAVA_CANDIDATES if plan.thorough_search else JAVA_CANDIDATES[::4]
                java[size], report.java_search[size] = best_java_settings(lab, size, candidates)
                report.java_settings[size] = str(java[size])
            report.rows += _shown(compare(lab, cases, size, java))
        for name, case in ALONE.items():
            if name in names:
                report.rows += _shown(case(lab))
    return report


def _shown(rows: list[Row]) -> list[Row]:
    print(table(rows), end="\n\n", flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    given, plan = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    try:
        report = run(given.names or NAMES, plan)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    for size, chosen in report.java_settings.items():
        print(f"Java's consumer, {size} B: {chosen}")
    if given.json:
        report.write_json(given.json)
    if given.markdown:
        report.write_markdown(given.markdown)
    if report.is_busy:
        print(BUSY_WARNING.format(report.load_at_start).strip("*"))
    for row in report.missed:
        print(f"MISSED: {row.case}, {row.size} B" if row.size else f"MISSED: {row.case}")
    return 3 if report.missed and given.strict else 0


if __name__ == "__main__":
    sys.exit(main())
