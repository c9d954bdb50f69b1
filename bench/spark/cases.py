"""Alternating repeats of every side, each checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.client.lab import Lab
from bench.common.config import Plan as LabPlan
from bench.common.report import say
from bench.common.tally import Tally, require_equal
from bench.spark.pipelines import SMALL, expected
from bench.spark.rows import Row, require_result
from bench.spark.settings import IN_PROCESS, OURS, PEERS, PLAIN, READ, Case, Plan
from bench.spark.sides import Sides

Run = Callable[[str], dict[str, Any]]
"""One run of a side, by its name; the answer has its seconds."""


def alternate(title: str, sides: Sequence[str], repeats: int, warm_up: Run, run: Run) -> dict[str, list[float]]:
    """An untimed run of each side, then `repeats` timed ones by turns; the order is turned round at each repeat."""
    for side in sides:
        warm_up(side)
        say(f"  {title}, warm-up: {side}")
    found: dict[str, list[float]] = {side: [] for side in sides}
    for repeat in range(1, repeats + 1):
        for side in sides if repeat % 2 else reversed(sides):
            seconds = run(side)["seconds"]
            found[side].append(seconds)
            say(f"  {title}, repeat {repeat}: {side} {seconds:.2f} s")
    return found


def pipeline(case: Case, sides: Sides, plan: Plan) -> Row:
    """One of the pipelines on all sides. Raises `UnequalWork` when a result is not the one that must come out."""

    def run(side: str) -> dict[str, Any]:
        answer = sides.run(side, case.name, plan.elements)
        require_result(case, side, answer["result"], expected(case.name, plan.elements))
        return answer

    seconds = alternate(case.title, (OURS, *PEERS, *PLAIN), plan.repeats, run, run)
    what = f"{SMALL if case.name == 'stages' else plan.elements:,} elements"
    return Row(case, what, seconds, PEERS)


def read(plan: Plan) -> Row:
    """Reading from a real broker, on Spark and in one process.

    The timed runs give the number of messages only, since counting is the pipeline that is measured; the untimed one
    makes all sums of `Tally`. Raises `UnequalWork` when they differ.
    """
    with Lab(LabPlan(messages=plan.messages, sizes=(plan.message_bytes,))) as lab:
        topic = lab.loaded(plan.message_bytes, plan.messages)
        tallies = {"loaded": Tally(plan.messages, plan.messages * plan.message_bytes)}

        def call(side: str, checked: bool) -> dict[str, Any]:
            if side == OURS:
                folder = str(lab.folder)
                answer = lab.call(side, "ours", "read", room="spark", topic=topic, folder=folder, checked=checked)
            elif checked:
                answer = lab.call(side, "ours_beam", "read_checked", topic=topic, batches=False)
            else:
                answer = lab.call(side, "ours_beam", "read", topic=topic)
            tally = Tally.from_answer(answer)
            if checked:
                tallies[side] = tally
            require_equal(READ.name, tallies | {f"{side} ": tally})
            return answer

        seconds = alternate(
            READ.title, (OURS, IN_PROCESS), plan.repeats, lambda s: call(s, True), lambda s: call(s, False)
        )
    return Row(READ, f"{plan.messages:,} messages of {plan.message_bytes} B", seconds, (IN_PROCESS,))
