"""The needs of pipelines, and the transforms that bring them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest

from rmqio import ReadAllFromRocketMQ, ReadFromRocketMQ, ReadOptions, StopAt
from rmqio.runners.capabilities import Requirement
from tests.helpers.pipelines.needy_pipelines import (
    SERVER,
    Mine,
    alone,
    beside_another,
    beside_itself,
    bounded,
    endless,
    flattened,
    grouped,
    keyed,
    live,
    merged,
    needs,
    read,
    read_further,
    stateful,
    ticks,
    unmerged,
    windowed_again,
)

SDF = {Requirement.SPLITTABLE: ["Read"]}
ENDLESS = {Requirement.ENDLESS_READS: ["Read"], Requirement.FINALIZATION: ["Read"], **SDF}


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda p: p | beam.Create([1]) | beam.Map(str), {}),
        (bounded, {Requirement.ENDING_READS: ["Read"], **SDF}),
        (lambda p: p | read(options=ReadOptions(max_num_records=5)), {Requirement.ENDING_READS: ["Read"], **SDF}),
        (
            lambda p: p | read(StopAt.latest(), consumer_group="g"),
            {Requirement.ENDING_READS: ["Read"], Requirement.FINALIZATION: ["Read"], **SDF},
        ),
        (endless, ENDLESS),
        (alone, ENDLESS),
        (beside_another, {**ENDLESS, Requirement.SIDE_INPUTS: ["Look"]}),
        (grouped, {**ENDLESS, Requirement.SHUFFLES_BEHIND: ["Group"], Requirement.KEPT_STATE: ["Group"]}),
        (flattened, {**ENDLESS, Requirement.SHUFFLES_BEHIND: ["Both"]}),
        (beside_itself, {**ENDLESS, Requirement.SHUFFLES_BEHIND: ["Look"], Requirement.SIDE_INPUTS: ["Look"]}),
        (
            stateful,
            {
                Requirement.ENDING_READS: ["Read"],
                **SDF,
                Requirement.STATE: ["State"],
                Requirement.EVENT_TIMERS: ["State"],
                Requirement.CLOCK_TIMERS: ["State"],
            },
        ),
        (
            live,
            {
                **ENDLESS,
                Requirement.STATE: ["State"],
                Requirement.LIVE_EVENT_TIMERS: ["State"],
                Requirement.LIVE_CLOCK_TIMERS: ["State"],
                Requirement.KEPT_STATE: ["State"],
            },
        ),
        (unmerged, {Requirement.STATE: ["State"], Requirement.UNMERGED_STATE: ["State"]}),
        (merged, {Requirement.STATE: ["State"], Requirement.MERGING_WINDOWS: ["Group"]}),
        (
            windowed_again,
            {
                Requirement.STATE: ["State"],
                Requirement.MERGING_WINDOWS: ["Group"],
                Requirement.UNMERGED_STATE: ["State"],
            },
        ),
        (ticks, {Requirement.UNBOUNDED: ["Ticks"], Requirement.SPLITTABLE: ["Ticks"]}),
        (
            lambda p: p | beam.Create(["a"]) | "Read all" >> ReadAllFromRocketMQ(**SERVER),
            {
                Requirement.UNBOUNDED: ["Read all"],
                Requirement.SPLITTABLE: ["Read all"],
                Requirement.FINALIZATION: ["Read all"],
            },
        ),
    ],
)
def test_needs_and_the_transforms_that_bring_them(
    build: Callable[[Any], Any], expected: dict[Requirement, list[str]]
) -> None:
    assert needs(build) == expected


def test_a_splittable_dofn_behind_a_read_without_end_is_a_shuffle() -> None:
    assert needs(read_further)[Requirement.SHUFFLES_BEHIND] == ["Read all"]


def test_a_name_is_the_label_that_its_user_gave_also_within_composites_of_their_own() -> None:
    found = needs(lambda p: keyed(bounded(p)) | "Totals" >> Mine())
    assert found[Requirement.MERGING_WINDOWS] == ["Totals/Sum"]


def test_a_read_of_a_user_s_composite_is_known() -> None:
    class Orders(beam.PTransform):
        def expand(self, pbegin: Any) -> Any:
            return pbegin | "Messages" >> ReadFromRocketMQ("orders", **SERVER)

    assert needs(lambda p: p | "Orders" >> Orders())[Requirement.ENDLESS_READS] == ["Orders/Messages"]
