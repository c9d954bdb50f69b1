"""Accumulators of a combine that wait in state are merged there: a window is long, its micro-batches are many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rmqio.runners.spark.beam.private import beam_runner_api_pb2, common_urns, create_InputStream
from rmqio.runners.spark.worker.bundles import Bundles
from rmqio.runners.spark.worker.shuffling.framing import varint

AT_LEAST: Final = 16
"""How many are worth a merge: what follows the GroupByKey would merge them anyway, but each is kept until then."""


class Merging:
    """Merges encoded accumulators of one CombineFn."""

    def __init__(self, combine_fn: Any, coder: Any) -> None:
        """Args: the coder of accumulators. The CombineFn is set up, for as long as the process lives."""
        combine_fn.setup()
        self._combine_fn = combine_fn
        self._impl = coder.get_impl()

    def merged(self, encoded: Sequence[bytes]) -> bytes:
        """One accumulator for all."""
        accumulators = [self._impl.decode_nested(each) for each in encoded]
        found: bytes = self._impl.encode_nested(self._combine_fn.merge_accumulators(accumulators))
        return found

    def merged_runs(self, runs: Sequence[bytes]) -> bytes:
        """One run for all; a run is a count and as many accumulators."""
        accumulators = []
        for run in runs:
            stream = create_InputStream(run)
            accumulators += [self._impl.decode_from_stream(stream, True) for _ in range(stream.read_var_int64())]
        found: bytes = self._impl.encode_nested(self._combine_fn.merge_accumulators(accumulators))
        return varint(1) + found


def merging_of(bundles: Bundles, kv_coder_id: str) -> Merging | None:
    """For a stage that merges what a GroupByKey has grouped; None for others. `kv_coder_id`: of that one's input."""
    merges = common_urns.combine_components.COMBINE_PER_KEY_MERGE_ACCUMULATORS.urn
    transforms = bundles.descriptor.transforms.values()
    found = [each for each in transforms if each.spec.urn == merges]
    (grouped,) = bundles.descriptor.transforms[bundles.input_id].outputs.values()
    readers = [each for each in transforms if grouped in each.inputs.values()]
    if len(readers) != 1 or readers[0] not in found:
        return None  # somebody else looks at each of the values
    payload = beam_runner_api_pb2.CombinePayload.FromString(readers[0].spec.payload)
    combine_fn = bundles.combine_fn(payload)
    return Merging(combine_fn, bundles.context.coders.get_by_id(kv_coder_id).value_coder())
