"""The coder of `Batch`, and the type hint that leads Beam to it.

To Beam, a `Batch` of records is a `List[Record]` with places: functions that take lists take it, and the coder keeps
the places where a runner encodes elements.
"""

from __future__ import annotations

import struct
import types
from collections.abc import Sequence
from typing import Any, Final

from apache_beam.coders import Coder, FastPrimitivesCoder, registry
from apache_beam.typehints.typehints import ListConstraint

from rmqio.batches import Batch
from rmqio.errors import LocalError, WireError
from rmqio.model import Message, MessageQueue, Record
from rmqio.transforms.coders.base import DECODE_ERRORS, ENCODE_ERRORS, pack_texts, unpack_texts
from rmqio.transforms.coders.beam import take_for

_KINDS: Final[tuple[Any, ...]] = (Any, Record, Message, bytes, str)
"""Types of values for which functions can have the hint `Batch[...]`; Beam takes a `Batch` of others for `Any`."""
_CONSECUTIVE: Final = 1
_HAS_QUEUE: Final = 2
_HAS_VARIANTS: Final = 4


class BatchConstraint(ListConstraint):
    """Beam's type of a `Batch` with values of one type."""

    def __repr__(self) -> str:
        return f"Batch[{self.inner_type!r}]"


class BatchCoder(Coder):
    """Version, flags, counts, queue, steps and variants; the offsets, of consecutive ones the first; then the values.

    Each value stands after its size.

    Args:
      value_coder: the coder of the values.
    """

    _HEAD: Final = struct.Struct(">BBIiI")
    _SIZE: Final = struct.Struct(">I")

    def __init__(self, value_coder: Coder) -> None:
        self.value_coder = value_coder

    @classmethod
    def from_type_hint(cls, typehint: Any, registry: Any) -> BatchCoder:
        inner = getattr(typehint, "inner_type", None)
        return cls(FastPrimitivesCoder() if inner is None else registry.get_coder(inner))

    def to_type_hint(self) -> Any:
        return BatchConstraint(self.value_coder.to_type_hint())

    def is_deterministic(self) -> bool:
        return bool(self.value_coder.is_deterministic())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.value_coder == other.value_coder

    def __hash__(self) -> int:
        return hash((type(self), self.value_coder))

    def encode(self, value: Batch[Any]) -> bytes:
        try:
            queue, offsets = value.queue, value.offsets
            numbers: Sequence[int] = offsets
            flags = 0 if queue is None else _HAS_QUEUE
            if isinstance(offsets, range) and offsets.step == 1:
                flags, numbers = flags | _CONSECUTIVE, (offsets.start,)
            topic, broker, queue_id = ("", "", 0) if queue is None else queue
            if value.variants:
                flags |= _HAS_VARIANTS
            texts = pack_texts([topic, broker, value.steps, *value.variants])
            parts = [self._HEAD.pack(1, flags, len(value), queue_id, len(texts)), texts]
            if queue is not None:
                parts.append(struct.pack(f">{len(numbers)}q", *numbers))
        except ENCODE_ERRORS as error:
            raise LocalError(f"not a Batch whose fields have its types: {type(value)} ({error})") from error
        encode, size = self.value_coder.encode, self._SIZE.pack
        for one in value:
            raw = encode(one)
            parts += (size(len(raw)), raw)
        return b"".join(parts)

    def decode(self, encoded: bytes) -> Batch[Any]:
        try:
            version, flags, count, queue_id, texts_size = self._HEAD.unpack_from(encoded)
            position = self._HEAD.size + texts_size
            if (
                version != 1
                or flags > _CONSECUTIVE | _HAS_QUEUE | _HAS_VARIANTS
                or max(position, 4 * count) > len(encoded)
            ):
                raise self._not_one(f"version {version}, {len(encoded)} bytes")
            texts = 3 + (count if flags & _HAS_VARIANTS else 0)
            topic, broker, steps, *variants = unpack_texts(encoded[:position], self._HEAD.size, texts)
            offsets: Any = ()
            if flags & _HAS_QUEUE:
                stored = 1 if flags & _CONSECUTIVE else count
                offsets = list(struct.unpack_from(f">{stored}q", encoded, position))
                position += 8 * stored
                if flags & _CONSECUTIVE:
                    offsets = range(offsets[0], offsets[0] + count)
            values = []
            for _ in range(count):
                (size,) = self._SIZE.unpack_from(encoded, position)
                begin, position = position + 4, position + 4 + size
                values.append(encoded[begin:position])
            if position != len(encoded):
                raise self._not_one(f"{len(encoded)} bytes, {position} expected")
        except DECODE_ERRORS as error:
            raise self._not_one(error) from error
        queue = MessageQueue(topic, broker, queue_id) if flags & _HAS_QUEUE else None
        return Batch(map(self.value_coder.decode, values), queue, offsets, steps, variants)

    def estimate_size(self, value: Batch[Any]) -> int:
        """The first value's size for all of them: Beam samples this, and encoding all would cost too much."""
        return 100 + len(value) * (4 + self.value_coder.estimate_size(value[0])) if value else 100

    @staticmethod
    def _not_one(reason: object) -> WireError:
        return WireError(f"these bytes are not one encoded Batch: {reason}")


def register_batch_coder() -> None:
    """Make Beam use it for the class and for the type hint, and take the one for the other. Idempotent."""
    take_for(
        {Batch: BatchConstraint(Any)} | {types.GenericAlias(Batch, kind): BatchConstraint(kind) for kind in _KINDS}
    )
    registry.register_coder(Batch, BatchCoder)
    registry.register_coder(BatchConstraint, BatchCoder)


register_batch_coder()
