"""The command line: `python -m bench.spark [cases...]`."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.common.report import BUSY_WARNING, machine_text
from bench.common.tally import BenchError
from bench.spark import cases, flags
from bench.spark.report import Report, text
from bench.spark.settings import CASES, PIPELINES, READ, Plan
from bench.spark.sides import Sides


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, Plan]:
    """Exits with status 2 for what does not fit."""
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark",
        description="rmqio's SparkRunner beside Beam's portable one and plain PySpark, in alternating repeats.",
        epilog="Exit status: 0; 1 if the sides did unequal work or something failed; with --strict, 3 if a target was "
        "missed.",
    )
    parser.add_argument("names", nargs="*", metavar="case", help=f"a case: {', '.join(names)}. Default: all")
    parser.add_argument("--elements", type=int, help=f"elements in each pipeline. Default: {Plan().elements:,}")
    parser.add_argument("--messages", type=int, help=f"messages in the case read. Default: {Plan().messages:,}")
    parser.add_argument("--repeats", type=int, help=f"timed runs, after an untimed one. Default: {Plan().repeats}")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument(
        "--flags",
        action="store_true",
        help=f"compare flags of the local JVM instead, on a start and on cases (default: {', '.join(flags.CASES)})",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 3 if a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to a file")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the tables into a page, between their marks"
    )
    given = parser.parse_args(arguments)
    if given.flags:
        names.remove(READ.name)  # it takes its time from the broker
    unknown = sorted(set(given.names) - set(names))
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(names)}")
    changes = {name: getattr(given, name) for name in ("elements", "messages", "repeats")}
    changes = {name: value for name, value in changes.items() if value is not None}
    for name, value in changes.items():
        if value < 1:
            parser.error(f"--{name}: {value} is not a number of {name}")
    return given, dataclasses.replace(Plan.quick() if given.quick else Plan(), **changes)


def run(names: Sequence[str], plan: Plan) -> Report:
    """Run the cases. Raises `BenchError`, `UnequalWork` among them; by then nothing is left running."""
    report = Report(plan.describe())
    with Sides() as sides:
        report.rows += [cases.pipeline(case, sides, plan) for case in PIPELINES if case.name in names]
    if READ.name in names:
        report.rows.append(cases.read(plan))
    return report


def run_flags(names: Sequence[str], plan: Plan) -> int:
    """Returns the exit status."""
    try:
        found = flags.measure(names, plan)
    except BenchError as error:
        print(f"bench.spark: {error}", file=sys.stderr)
        return 1
    print(f"Machine: {machine_text()}. {plan.elements:,} elements, {plan.repeats} repeats.")
    print(flags.table(found))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    given, plan = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    if given.flags:
        return run_flags(given.names or flags.CASES, plan)
    try:
        report = run(given.names or [case.name for case in CASES], plan)
    except BenchError as error:
        print(f"bench.spark: {error}", file=sys.stderr)
        return 1
    print(text(report.rows))
    if given.json:
        report.write_json(given.json)
    if given.markdown:
        report.write_markdown(given.markdown)
    if report.is_busy:
        print(BUSY_WARNING.format(report.load_at_start).strip("*"))
    for row in report.missed:
        print(f"MISSED: {row.case.name}")
    return 3 if report.missed and given.strict else 0


if __name__ == "__main__":
    sys.exit(main())
