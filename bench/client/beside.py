"""The common part of benchmarks that put sides of ours next to each other: no Java runs, and the same options."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar

from bench.client.lab import Lab
from bench.common.config import BROKER_CONFIG, BROKER_HEAP_MB, Plan
from bench.common.report import BUSY_WARNING, Report, say, table
from bench.common.rows import Row
from bench.common.tally import BenchError
from rmqio.local import LocalRocketMQ

_NUMBERS: Final = ("messages", "sync_messages", "repeats", "warm_ups", "batch", "in_flight")


class BareLab(Lab):
    """Without Java."""

    tls: ClassVar[bool] = False
    """Whether the broker speaks TLS beside plain text."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqio-bench-")))
            say("starting RocketMQ ...")
            broker = LocalRocketMQ(broker_heap_mb=BROKER_HEAP_MB, broker_config=BROKER_CONFIG, tls=self.tls)
            self.broker = stack.enter_context(broker)
            self.name_server = self.broker.name_server
            self._stack = stack.pop_all()
        return self


L = TypeVar("L", bound=BareLab)


def main(
    arguments: Sequence[str] | None,
    module: str,
    doc: str | None,
    make_lab: Callable[[Plan], L],
    compare: Callable[[L, int], list[Row]],
    *,
    usual: Plan,
    quick: Plan,
) -> int:
    """Run `compare` for each size of bodies and show what it found; the exit status."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.client.{module}", description=(doc or "").partition("\n")[0]
    )
    for name in _NUMBERS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=f"default: {getattr(usual, name):,}")
    parser.add_argument("--sizes", default="100,1024", help="sizes of the bodies in bytes; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to a file")
    given = parser.parse_args(arguments)
    changes: dict[str, Any] = {name: getattr(given, name) for name in _NUMBERS if getattr(given, name) is not None}
    sizes = tuple(int(size) for size in given.sizes.split(","))
    plan = replace(quick if given.quick else usual, sizes=sizes, **changes)
    report = Report(plan.describe(), round(os.getloadavg()[0], 1))
    try:
        with make_lab(plan) as lab:
            for size in plan.sizes:
                report.rows += compare(lab, size)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(table(report.rows))
    if given.json:
        report.write_json(given.json)
    if report.is_busy:
        print(BUSY_WARNING.format(report.load_at_start).strip("*"))
    return 0
