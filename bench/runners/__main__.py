"""The three pipelines on all runners: throughput, start-up, memory, and the time of each part.

python -m bench.runners [--messages 100000] [--repeats 3] [--pipelines province word_count] [--runners ...]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.common.config import BROKER_CONFIG
from bench.common.report import aligned, machine_text, say
from bench.runners.inputs import INPUTS, load, require_result
from bench.runners.parts import PARTS, PIPELINES
from bench.runners.program import Ran, run
from rmqio.local import LocalRocketMQ

_PIPELINES: Final = Path(__file__).resolve().parents[2] / "pipelines"
QUEUES: Final = 4
FEW: Final = 40
"""A run with so few messages is all start and end."""
RUNNERS: Final = ("DirectRunner", "SparkRunner", "SparkRunner --streaming", "FlinkRunner", "FlinkRunner --streaming")
_HEAD: Final = ("pipeline", "runner", "start-up s", "whole s", "messages/s", "peak MB", *PARTS)


class Bench:
    """One pipeline, its topics, and what runs took."""

    def __init__(self, broker: LocalRocketMQ, name: str, count: int) -> None:
        self.broker, self.name, self.count = broker, name, count
        self._many, self._few = self._loaded(count), self._loaded(FEW)
        self.full: dict[str, list[Ran]] = defaultdict(list)
        self.small: dict[str, list[Ran]] = defaultdict(list)
        self.cut: dict[tuple[str, int], list[Ran]] = defaultdict(list)

    def repeat(self, runner: str) -> None:
        """Each run once, and each result checked."""
        self.small[runner].append(self._whole(runner, self._few, FEW))
        self.full[runner].append(self._whole(runner, self._many, self.count))
        for parts in range(1, len(PIPELINES[self.name])) if not self.cut_is_known(runner) else ():
            command = ["-m", "bench.runners.parts", self.name, str(parts)]
            self.cut[runner, parts].append(run(self._flags(command, runner, self._many, self._topic())))

    def cut_is_known(self, runner: str) -> bool:
        """Cut pipelines run once: they tell where the time goes, roughly, and no rate."""
        return (runner, 1) in self.cut

    def cells(self, runner: str) -> list[str]:
        """A line of the table. Shares are left out where a run's work is less than what its start varies by."""
        small, full = self._seconds(self.small[runner]), self._seconds(self.full[runner])
        parts = [*PIPELINES[self.name]]
        until = [small, *(self._seconds(self.cut[runner, number]) for number in range(1, len(parts))), full]
        starts = [each.seconds for each in self.small[runner]]
        is_known = full - small > 4 * (max(starts) - min(starts))
        shares = (
            {part: (until[at + 1] - until[at]) / (full - small) for at, part in enumerate(parts)} if is_known else {}
        )
        return [
            *(self.name, runner, _spread(self.small[runner]), _spread(self.full[runner])),
            *(f"{self.count / (full - small):,.0f}", f"{max(each.peak_mb for each in self.full[runner]):,.0f}"),
            *(f"{shares[part]:.0%}" if part in shares else "" for part in PARTS),
        ]

    def _whole(self, runner: str, source: str, count: int) -> Ran:
        sink = self._topic()
        command = [str(_PIPELINES / f"{self.name}.py")]
        found = run(self._flags(command, runner, source, sink, "--start=earliest", "--stop=latest"))
        require_result(self.name, self.broker.name_server, sink, count)
        say(f"{self.name}, {runner}: {count:,} messages in {found.seconds:.1f} s, {found.peak_mb:,.0f} MB")
        return found

    def _flags(self, command: Sequence[str], runner: str, source: str, sink: str, *more: str) -> list[str]:
        at = [f"--name_server={self.broker.name_server}", f"--source_topic={source}", f"--sink_topic={sink}"]
        return [*command, *at, f"--runner={runner.split()[0]}", *runner.split()[1:], *more]

    def _loaded(self, count: int) -> str:
        topic = self._topic()
        load(self.broker.name_server, topic, INPUTS[self.name].bodies(count))
        return topic

    def _topic(self) -> str:
        topic = f"{self.name}-{uuid.uuid4().hex[:8]}"
        self.broker.create_topic(topic, queues=QUEUES)
        return topic

    @staticmethod
    def _seconds(those: Sequence[Ran]) -> float:
        return statistics.median(each.seconds for each in those)


def _spread(those: Sequence[Ran]) -> str:
    """Seconds: median, minimum and maximum."""
    found = [each.seconds for each in those]
    return f"{statistics.median(found):.1f} ({min(found):.1f}..{max(found):.1f})"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.runners", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pipelines", nargs="+", choices=sorted(PIPELINES), default=[*PIPELINES])
    parser.add_argument("--runners", nargs="+", choices=RUNNERS, default=[*RUNNERS])
    given = parser.parse_args(argv)
    print(f"Machine: {machine_text()}. {given.messages:,} messages, {QUEUES} queues, {given.repeats} repeats.")
    lines: list[Sequence[str]] = [_HEAD]
    with LocalRocketMQ(broker_config=BROKER_CONFIG) as broker:
        for name in given.pipelines:
            bench = Bench(broker, name, given.messages)
            for number in range(given.repeats):
                for runner in given.runners if number % 2 == 0 else reversed(given.runners):
                    bench.repeat(runner)
            lines += [bench.cells(runner) for runner in given.runners]
            print(aligned([_HEAD, *lines[-len(given.runners) :]], left={0, 1}), flush=True)
    if len(given.pipelines) > 1:
        print(aligned(lines, left={0, 1}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
