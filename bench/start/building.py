"""CPU of small pipelines on the DirectRunner: with our options, beside Beam's own in the same process.

python -m bench.start.building [--repeats 15]

No broker is needed: building, translating and starting a pipeline is all that costs here, but for the one with state.
The sides take turns, and must give the same rows. Our options make each view once (`rmqio.runners.beam.speedups`), and
make Beam faster (`rmqio.runners.beam.speedups`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import apache_beam as beam
import objsize
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import core, userstate

from bench.common.report import aligned, machine_text
from bench.common.rows import Spread
from rmqio.runners.beam.speedups import ViewedOptions, speed_up_beam
from rmqio.runners.options import IN_PROCESS_RUNNER
from rmqio.sql import SqlTransform

Pipeline = Callable[[beam.Pipeline], Any]
BEAMS_OWN: Final = core.get_function_args_defaults, userstate.get_dofn_specs


def three_steps(pipeline: beam.Pipeline) -> None:
    found = pipeline | beam.Create(range(10)) | beam.Map(lambda n: n + 1)
    assert_that(found, equal_to(range(1, 11)))


def ten_steps(pipeline: beam.Pipeline) -> None:
    numbers = pipeline | beam.Create(range(10))
    for step in range(8):
        numbers = numbers | f"add {step}" >> beam.Map(lambda n: n + 1)
    assert_that(numbers, equal_to(range(8, 18)))


def sql(pipeline: beam.Pipeline) -> None:
    rows = [beam.Row(user=f"u{n % 3}", amount=n) for n in range(10)]
    orders = pipeline | beam.Create(rows)
    query = (
        "SELECT o.user AS user, SUM(o.amount) AS total FROM orders o JOIN orders p ON o.user = p.user "
        "WHERE p.amount < 3 GROUP BY o.user"
    )
    found = {"orders": orders} | SqlTransform(query)
    assert_that(found | beam.Map(lambda row: (row.user, row.total)), equal_to([("u0", 18), ("u1", 12), ("u2", 15)]))


class Count(beam.DoFn):
    COUNT = userstate.CombiningValueStateSpec("count", sum)

    def process(self, element: tuple[int, int], count: Any = beam.DoFn.StateParam(COUNT)) -> Iterator[tuple[int, int]]:
        count.add(1)
        yield element[0], count.read()


def state(pipeline: beam.Pipeline) -> None:
    counts = pipeline | beam.Create([(n % 500, n) for n in range(1_000)]) | beam.ParDo(Count())
    assert_that(counts, equal_to([(key, count) for key in range(500) for count in (1, 2)]))


CASES: Final[dict[str, Pipeline]] = {
    "three steps": three_steps,
    "ten steps": ten_steps,
    "SQL, a join and groups": sql,
    "state of 500 keys": state,
}


def cpu_of(build: Pipeline, kind: type[PipelineOptions]) -> float:
    """Returns milliseconds of CPU of this process, from the options to the end of the run."""
    core.get_function_args_defaults, userstate.get_dofn_specs = BEAMS_OWN
    objsize.default_settings.update(exclude_modules_globals=True)
    if kind is ViewedOptions:
        speed_up_beam()
    before = time.process_time()
    with beam.Pipeline(options=kind([f"--runner={IN_PROCESS_RUNNER}"])) as pipeline:
        build(pipeline)
    return (time.process_time() - before) * 1000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.start.building", description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args(arguments)
    print(f"{machine_text()}\n")
    lines = [("pipeline", "ours, ms of CPU", "with Beam's own, ms", "ratio")]
    for name, build in CASES.items():
        ours: list[float] = []
        peer: list[float] = []
        for repeat in range(given.repeats + 1):
            turn = [(ours, ViewedOptions), (peer, PipelineOptions)]
            for times, kind in turn if repeat % 2 else reversed(turn):
                took = cpu_of(build, kind)
                if repeat:  # the first fills caches
                    times.append(took)
        ratios = [one / other for one, other in zip(ours, peer, strict=True)]
        ratio = Spread(Spread.of(ours).median / Spread.of(peer).median, min(ratios), max(ratios))
        lines.append((name, Spread.of(ours).text(), Spread.of(peer).text(), ratio.text("{:.2f}")))
    print(aligned(lines, left={0}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
