"""The plan of a pipeline: its steps in order, with coders and windowing strategies of the PCollections between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from apache_beam.transforms import trigger
from apache_beam.transforms.window import GlobalWindows

from rmqio.runners.spark.beam import triggers
from rmqio.runners.spark.beam.private import PipelineContext, beam_runner_api_pb2, common_urns
from rmqio.runners.spark.model import Grouping, GroupSpec
from rmqio.runners.spark.translation.nodes import Node, Stage

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.core import Windowing

    from rmqio.runners.spark.beam.private import TransformContext


@dataclass(slots=True)
class Plan:
    """Nodes in topological order, and the components to which their ids refer."""

    nodes: list[Node | Stage]
    components: beam_runner_api_pb2.Components
    context: TransformContext
    producers: dict[str, Node | Stage]  # by id of the PCollection
    groupings: dict[str, Grouping] = field(default_factory=dict)  # by id of the windowing strategy

    def windowed_coder_id(self, pcollection_id: str, state_iterables: bool = False) -> str:
        """Returns the id of the coder of whole elements."""
        pcollection = self.components.pcollections[pcollection_id]
        windowing = self.components.windowing_strategies[pcollection.windowing_strategy_id]
        coder_id = self.context.add_or_get_coder_id(
            beam_runner_api_pb2.Coder(
                spec=beam_runner_api_pb2.FunctionSpec(urn=common_urns.coders.WINDOWED_VALUE.urn),
                component_coder_ids=[pcollection.coder_id, windowing.window_coder_id],
            ),
            pcollection.coder_id + "_windowed",
        )
        found: str = self.context.with_state_iterables(coder_id) if state_iterables else coder_id
        return found

    def context_coder(self, coder_id: str) -> Coder:
        """Returns the coder with an id."""
        return PipelineContext(self.components).coders.get_by_id(coder_id)

    def group_spec(self, pcollection_id: str) -> GroupSpec:
        """Returns how a GroupByKey that reads the PCollection groups it."""
        pcollection = self.components.pcollections[pcollection_id]
        windowing_id = pcollection.windowing_strategy_id
        if windowing_id not in self.groupings:
            context = PipelineContext(self.components)
            self.groupings[windowing_id] = grouping_of(context.windowing_strategies.get_by_id(windowing_id))
        return GroupSpec(self.groupings[windowing_id], pcollection.coder_id, windowing_id)


def grouping_of(windowing: Windowing) -> Grouping:
    """Returns what a GroupByKey over bounded data must know about its elements."""
    fires_once = isinstance(windowing.triggerfn, trigger.DefaultTrigger) or windowing.triggerfn in (
        trigger.AfterWatermark(),
        triggers.NO_TRIGGER,
    )
    if windowing.is_default() or (
        windowing.windowfn == GlobalWindows()
        and windowing.triggerfn in (trigger.AfterCount(1), triggers.ALWAYS, triggers.NO_TRIGGER)
    ):
        return Grouping.GLOBAL
    return Grouping.WINDOWED if fires_once else Grouping.TRIGGERED
