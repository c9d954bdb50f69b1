"""Translates a pipeline proto to a plan of fused stages. Knows nothing about Spark."""

from rmqio.runners.spark.translation.nodes import (
    Empty,
    Flatten,
    GroupByKey,
    Impulse,
    Node,
    Redistribute,
    Source,
    Stage,
    Watermarks,
)
from rmqio.runners.spark.translation.plan import Plan, grouping_of
from rmqio.runners.spark.translation.translator import translate
from rmqio.runners.spark.translation.urns import PLANNED, WATERMARKS

__all__ = [
    "translate",
    "Plan",
    "grouping_of",
    "Node",
    "Stage",
    "Impulse",
    "Source",
    "Watermarks",
    "Flatten",
    "Empty",
    "Redistribute",
    "GroupByKey",
    "PLANNED",
    "WATERMARKS",
]
