"""`python -m bench.peers`: rocketmq-flink and rocketmq-streams beside rmqio, on one broker, in one run.

Jobs: `province` from topic to topic; `killed`, the same with a SIGKILL half way; `sums` in windows of 10 s; `patterns`,
41 of them on one field. Each side has a sink of its own, which is read and compared with what should be there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.common.config import BROKER_CONFIG, BROKER_HEAP_MB
from bench.common.report import say
from bench.common.tally import BenchError
from bench.peers import connector
from bench.peers.lab import JOBS, SIDES, Lab, Row
from rmqio.local import LocalRocketMQ


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The table in Markdown."""
    yield "| job | side | first message s | whole s | msg/s | MB | came out |"
    yield "|---|---|--:|--:|--:|--:|---|"
    for row in rows:
        took = row.outcome
        rate = f"{row.messages / took.whole_s:,.0f}"
        times = f"{took.first_s:.1f} | {took.whole_s:.1f} | {rate} | {took.memory_mb:,}"
        yield f"| {row.job}, {row.messages:,} | {row.side} | {times} | {row.ledger} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it. Returns 1 if a side could not run, or if one of ours did other work than it should."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    add = parser.add_argument
    add("jobs", nargs="*", metavar="JOB", help=f"{', '.join(JOBS)}; default: all")
    add("--messages", type=int, default=200_000, help="default: %(default)s")
    add("--sides", default=",".join(map(_short, SIDES)), help="default: %(default)s")
    add("--rocketmq_flink", type=Path, metavar="CLONE", help=f"a clone of {connector.URL}; default: cloned anew")
    given = parser.parse_args(arguments)
    jobs, chosen = given.jobs or [*JOBS], given.sides.split(",")
    for what, names, known in (("job", jobs, [*JOBS]), ("side", chosen, [*map(_short, SIDES)])):
        if wrong := [each for each in names if each not in known]:
            parser.error(f"unknown {what} {wrong[0]}; known are {', '.join(known)}")
    rows: list[Row] = []
    failed = False
    with (
        tempfile.TemporaryDirectory(prefix="rmqio-peers-", ignore_cleanup_errors=True) as folder,
        LocalRocketMQ(
            broker_heap_mb=BROKER_HEAP_MB, broker_config={**BROKER_CONFIG, "autoCreateTopicEnable": "true"}
        ) as broker,
    ):
        lab = Lab(broker, Path(folder), given.messages, given.rocketmq_flink)
        for job in jobs:
            for side in JOBS[job][1]:
                if _short(side) not in chosen:
                    continue
                say(f"{job}: {side} ...")
                try:
                    rows.append(lab.row(job, side))
                except BenchError as error:
                    print(f"{job}: {side}: {error}", file=sys.stderr)
                    failed = True
                else:
                    say(f"  {rows[-1].outcome.whole_s:.1f} s, {rows[-1].ledger}")
    print(*table(rows), sep="\n")
    wrong_work = [row for row in rows if row.side.startswith("rmqio") and any(row.ledger[1:]) and row.job != "killed"]
    wrong_work += [row for row in rows if row.side.startswith("rmqio") and row.job == "killed" and row.ledger.lost]
    for row in wrong_work:
        print(f"{row.job}: {row.side} did other work: {row.ledger}", file=sys.stderr)
    return 1 if failed or wrong_work else 0


def _short(side: str) -> str:
    return side.replace(", ", "-").lower()


if __name__ == "__main__":
    sys.exit(main())
