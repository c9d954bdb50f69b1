"""Merges the accumulators of a combine that wait in state, because a long window has many micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rmqio.runners.spark.beam.private import beam_runner_api_pb2, common_urns, create_InputStream
from rmqio.runners.spark.worker.bundles import Bundles
from rmqio.runners.spark.worker.shuffling.framing import varint

if TYPE_CHECKING:
    from apache_beam.coders import Coder
    from apache_beam.transforms.core import CombineFn

AT_LEAST: Final = 16
"""The number of accumulators that is worth a merge. The transform after the GroupByKey would merge them anyway, but
until then each of them is kept."""


class Merging:
    """Merges encoded accumulators of one CombineFn."""

    def __init__(self, combine_fn: CombineFn, coder: Coder) -> None:
        """Args: the CombineFn, which is set up for as long as the process lives; the coder of accumulators."""
        combine_fn.setup()
        self._combine_fn = combine_fn
        self._impl = coder.get_impl()

    def merged(self, encoded: Sequence[bytes]) -> bytes:
        """Returns one accumulator for all."""
        accumulators = [self._impl.decode_nested(each) for each in encoded]
        found: bytes = self._impl.encode_nested(self._combine_fn.merge_accumulators(accumulators))
        return found

    def merged_runs(self, runs: Sequence[bytes]) -> bytes:
        """Returns one run for all. A run is a count and that many accumulators."""
        accumulators = []
        for run in runs:
            stream = create_InputStream(run)
            accumulators += [self._impl.decode_from_stream(stream, True) for _ in range(stream.read_var_int64())]
        found: bytes = self._impl.encode_nested(self._combine_fn.merge_accumulators(accumulators))
        return varint(1) + found


def merging_of(bundles: Bundles, kv_coder_id: str) -> Merging | None:
    """Returns a `Merging` for a stage that merges the accumulators that a GroupByKey has grouped, else None.

    Args:
      kv_coder_id: the coder of the GroupByKey's input.
    """
    merges = common_urns.combine_components.COMBINE_PER_KEY_MERGE_ACCUMULATORS.urn
    transforms = bundles.descriptor.transforms.values()
    found = [each for each in transforms if each.spec.urn == merges]
    (grouped,) = bundles.descriptor.transforms[bundles.input_id].outputs.values()
    readers = [each for each in transforms if grouped in each.inputs.values()]
    if len(readers) != 1 or readers[0] not in found:
        return None  # another transform uses the values
    payload = beam_runner_api_pb2.CombinePayload.FromString(readers[0].spec.payload)
    combine_fn = bundles.combine_fn(payload)
    return Merging(combine_fn, bundles.context.coders.get_by_id(kv_coder_id).value_coder())
