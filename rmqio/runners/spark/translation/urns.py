"""The URNs of the transforms that the runner runs itself; all others are run by Beam's code in fused stages."""

from __future__ import annotations

from typing import Final

from rmqio.runners.spark.beam.private import common_urns

IMPULSE: Final = common_urns.primitives.IMPULSE.urn
FLATTEN: Final = common_urns.primitives.FLATTEN.urn
GROUP_BY_KEY: Final = common_urns.primitives.GROUP_BY_KEY.urn
# Composites that only move elements to other partitions
REDISTRIBUTE: Final = frozenset(
    {common_urns.composites.RESHUFFLE.urn, common_urns.composites.REDISTRIBUTE_ARBITRARILY.urn}
)
EMPTY: Final = "rmqio:spark:empty:v1"
# Transforms of streaming: see streaming/planning/planned_source.py
PLANNED: Final = "rmqio:spark:planned_source:v1"
WATERMARKS: Final = "rmqio:spark:watermarks:v1"
