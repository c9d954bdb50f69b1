"""Beam coders of the values that travel between stages: explicit, deterministic, without pickle.

Importing this module registers them with Beam, which would otherwise infer a RowCoder for the named tuples. A value is
encoded as a fixed header of big-endian numbers, including lengths, followed by its texts and bytes. The first byte is
the version of the layout. Decoding raises `WireError` for anything that is not exactly one value. Encoding a value with
fields of wrong types raises `LocalError`.
"""

from __future__ import annotations

import struct
import types
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from apache_beam.coders import Coder, FastPrimitivesCoder, registry
from apache_beam.typehints.typehints import ListConstraint

from rmqio.batches import Batch
from rmqio.errors import LocalError, WireError
from rmqio.model import Message, MessageQueue, Record, SendResult, SendStatus
from rmqio.sending.batches import FailedMessage
from rmqio.transforms.beam import take_for
from rmqio.transforms.failures import ReadFailure
from rmqio.transforms.reading.discovery import Known, KnownCoder
from rmqio.transforms.reading.record_batches import RecordBatch
from rmqio.transforms.reading.restriction import QueueDescriptor, QueueDescriptorCoder, QueueRange, QueueRangeCoder

# Common parts of the coders of our values: their base class, and how texts are packed.

# Lone surrogates (from a property that was not UTF-8) are also text, and must survive.
UTF8: Final = ("utf-8", "surrogatepass")
ENCODE_ERRORS: Final = (struct.error, TypeError, AttributeError, ValueError)
DECODE_ERRORS: Final = (struct.error, IndexError, ValueError)


class ValueCoder(Coder):
    """Base of these coders: they have no parameters, so coders of one class are equal."""

    value_type: ClassVar[type]

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return self.value_type

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def _cannot_encode(self, value: object, error: Exception) -> LocalError:
        # The value is not quoted: errors go to logs, and bodies must not.
        return LocalError(f"not a {self.value_type.__name__} whose fields have its types: {type(value)} ({error})")

    def _not_one(self, reason: object) -> WireError:
        return WireError(f"these bytes are not one encoded {self.value_type.__name__}: {reason}")


def pack_texts(texts: list[str] | tuple[str, ...]) -> bytes:
    """Packs texts, each as UTF-8 after its size."""
    parts: list[bytes] = []
    for text in texts:
        raw = text.encode(*UTF8)
        parts += (len(raw).to_bytes(4, "big"), raw)
    return b"".join(parts)


def unpack_texts(encoded: bytes, position: int, count: int) -> list[str]:
    """Unpacks exactly `count` texts, which must reach the end. Raises ValueError."""
    texts: list[str] = []
    total = len(encoded)
    if position + 4 * count > total:  # checked first: a hostile count must not cause a long loop
        raise ValueError(f"{count} texts do not fit into {total - position} bytes")
    for _ in range(count):
        begin = position + 4
        position = begin + int.from_bytes(encoded[begin - 4 : begin], "big")
        if position > total:
            raise ValueError("a text is cut off")
        texts.append(str(encoded[begin:position], *UTF8))
    if position != total:
        raise ValueError(f"{total - position} bytes are left over")
    return texts


# The coder of `Batch`, and the type hint that leads Beam to it.
#
# To Beam, a `Batch` of records is a `List[Record]` with places: functions that take lists take it, and the coder
# keeps the places where a runner encodes elements.

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


class RecordCoder(ValueCoder):
    """79 bytes and the topic, broker, body, properties and hosts."""

    value_type = Record
    _HEAD: Final = struct.Struct(">BiqqqiiiqqIiHHIIBB")  # 79 bytes, spelled out below because it runs per message

    def encode(self, value: Record) -> bytes:
        try:
            (
                topic, broker, queue_id, queue_offset, body, born, store, properties, reconsumed, sys_flag, flag,
                commit_log_offset, prepared, born_host, store_host, crc, stored_size,
            ) = value  # fmt: skip
            topic_bytes = topic.encode(*UTF8)
            broker_bytes = broker.encode(*UTF8)
            head = self._HEAD.pack(
                1, queue_id, queue_offset, born, store, reconsumed, sys_flag, flag, commit_log_offset, prepared, crc,
                stored_size, len(topic_bytes), len(broker_bytes), len(body), len(properties), len(born_host),
                len(store_host),
            )  # fmt: skip
            return b"".join((head, topic_bytes, broker_bytes, body, properties, born_host, store_host))
        except ENCODE_ERRORS as error:
            raise self._cannot_encode(value, error) from error

    def decode(self, encoded: bytes) -> Record:
        try:
            (
                version, queue_id, queue_offset, born, store, reconsumed, sys_flag, flag, commit_log_offset, prepared,
                crc, stored_size, topic_size, broker_size, body_size, properties_size, born_size, store_size,
            ) = self._HEAD.unpack_from(encoded)  # fmt: skip
            broker_at = 79 + topic_size
            body_at = broker_at + broker_size
            properties_at = body_at + body_size
            born_at = properties_at + properties_size
            store_at = born_at + born_size
            if store_at + store_size != len(encoded) or version != 1:
                raise self._not_one(f"version {version}, {len(encoded)} bytes")
            # Does what Record's constructor does, without its keyword handling.
            return tuple.__new__(
                Record,
                (
                    str(encoded[79:broker_at], *UTF8),
                    str(encoded[broker_at:body_at], *UTF8),
                    queue_id,
                    queue_offset,
                    encoded[body_at:properties_at],
                    born,
                    store,
                    encoded[properties_at:born_at],
                    reconsumed,
                    sys_flag,
                    flag,
                    commit_log_offset,
                    prepared,
                    encoded[born_at:store_at],
                    encoded[store_at:],
                    crc,
                    stored_size,
                ),
            )
        except DECODE_ERRORS as error:
            raise self._not_one(error) from error

    def estimate_size(self, value: Record) -> int:
        return 120 + len(value.body) + len(value.raw_properties)


class MessageQueueCoder(ValueCoder):
    """9 bytes, topic and broker."""

    value_type = MessageQueue
    _HEAD: Final = struct.Struct(">BiHH")

    def encode(self, value: MessageQueue) -> bytes:
        try:
            topic, broker = value.topic.encode(*UTF8), value.broker.encode(*UTF8)
            return self._HEAD.pack(1, value.queue_id, len(topic), len(broker)) + topic + broker
        except ENCODE_ERRORS as error:
            raise self._cannot_encode(value, error) from error

    def decode(self, encoded: bytes) -> MessageQueue:
        try:
            version, queue_id, topic_size, broker_size = self._HEAD.unpack_from(encoded)
            broker_at = 9 + topic_size
            if version != 1 or broker_at + broker_size != len(encoded):
                raise self._not_one(f"version {version}, {len(encoded)} bytes")
            return MessageQueue(str(encoded[9:broker_at], *UTF8), str(encoded[broker_at:], *UTF8), queue_id)
        except DECODE_ERRORS as error:
            raise self._not_one(error) from error


class SendResultCoder(ValueCoder):
    """22 bytes, topic, broker and the two ids; in version 2 also the recall handle."""

    value_type = SendResult
    _HEAD: Final = struct.Struct(">BBiqHHHH")
    _STATUS: Final = {status.value: status for status in SendStatus}

    def encode(self, value: SendResult) -> bytes:
        try:
            queue, queue_offset, message_id, offset_message_id, status, recall_handle = value
            version, tail = (1, b"")
            if recall_handle is not None:
                handle = recall_handle.encode(*UTF8)
                version, tail = 2, struct.pack(">H", len(handle)) + handle
            topic, broker = queue.topic.encode(*UTF8), queue.broker.encode(*UTF8)
            ids = message_id.encode(*UTF8), offset_message_id.encode(*UTF8)
            head = self._HEAD.pack(
                version, status.value, queue.queue_id, queue_offset, len(topic), len(broker), len(ids[0]), len(ids[1])
            )
            return b"".join((head, topic, broker, *ids, tail))
        except ENCODE_ERRORS as error:
            raise self._cannot_encode(value, error) from error

    def decode(self, encoded: bytes) -> SendResult:
        try:
            version, status, queue_id, offset, topic_size, broker_size, id_size, other_size = self._HEAD.unpack_from(
                encoded
            )
            broker_at = 22 + topic_size
            id_at = broker_at + broker_size
            other_at = id_at + id_size
            end = other_at + other_size
            handle_at = end
            if version == 2:
                handle_at += 2
                end = handle_at + int.from_bytes(encoded[end:handle_at], "big")
            if version not in (1, 2) or end != len(encoded) or status not in self._STATUS:
                raise self._not_one(f"version {version}, status {status}, {len(encoded)} bytes")
            return SendResult(
                MessageQueue(str(encoded[22:broker_at], *UTF8), str(encoded[broker_at:id_at], *UTF8), queue_id),
                offset,
                str(encoded[id_at:other_at], *UTF8),
                str(encoded[other_at : other_at + other_size], *UTF8),
                self._STATUS[status],
                str(encoded[handle_at:], *UTF8) if version == 2 else None,
            )
        except DECODE_ERRORS as error:
            raise self._not_one(error) from error


class MessageCoder(ValueCoder):
    """Version, a byte of flags for optional fields, the body, then texts. Properties are sorted by name."""

    value_type = Message
    _HEAD: Final = struct.Struct(">BBqqIII")

    def encode(self, value: Message) -> bytes:
        try:
            body, topic, tags, keys, properties, sharding_key, delay_level, deliver_at_ms = value
            present = (
                (topic is not None)
                | (tags is not None) << 1
                | (sharding_key is not None) << 2
                | (delay_level is not None) << 3
                | (deliver_at_ms is not None) << 4
            )
            texts = [text for text in (topic, tags, sharding_key) if text is not None]
            texts += keys
            if properties:
                for item in sorted(properties.items()):
                    texts += item
            head = self._HEAD.pack(
                1, present, delay_level or 0, deliver_at_ms or 0, len(body), len(keys), len(properties)
            )
            return b"".join((head, body, pack_texts(texts))) if texts else head + body
        except ENCODE_ERRORS as error:
            raise self._cannot_encode(value, error) from error

    def decode(self, encoded: bytes) -> Message:
        try:
            version, present, delay_level, deliver_at_ms, body_size, key_count, count = self._HEAD.unpack_from(encoded)
            body_end = self._HEAD.size + body_size
            if version != 1 or present > 31 or body_end > len(encoded):
                raise self._not_one(f"version {version}, {len(encoded)} bytes")
            texts = iter(unpack_texts(encoded, body_end, (present & 7).bit_count() + key_count + 2 * count))
            return Message(
                encoded[self._HEAD.size : body_end],
                topic=next(texts) if present & 1 else None,
                tags=next(texts) if present & 2 else None,
                sharding_key=next(texts) if present & 4 else None,
                keys=tuple(next(texts) for _ in range(key_count)),
                properties={next(texts): next(texts) for _ in range(count)},
                delay_level=delay_level if present & 8 else None,
                deliver_at_ms=deliver_at_ms if present & 16 else None,
            )
        except DECODE_ERRORS as error:
            raise self._not_one(error) from error

    def estimate_size(self, value: Message) -> int:
        return 100 + len(value.body)


class FailedMessageCoder(ValueCoder):
    """Version, flags and the message's size; the message; then texts."""

    value_type = FailedMessage
    _HEAD: Final = struct.Struct(">BBI")

    def encode(self, value: FailedMessage) -> bytes:
        try:
            message = b"" if value.message is None else _MESSAGE.encode(value.message)
            present = (value.message is not None) | (value.topic is not None) << 1 | (value.position is not None) << 2
            head = self._HEAD.pack(1, present, len(message))
            texts = [value.element, value.topic or "", value.error, value.reason]
            if value.position is not None:
                texts.append(str(value.position))
            return b"".join((head, message, pack_texts(texts)))
        except ENCODE_ERRORS as error:
            raise self._cannot_encode(value, error) from error

    def decode(self, encoded: bytes) -> FailedMessage:
        try:
            version, present, size = self._HEAD.unpack_from(encoded)
            end = self._HEAD.size + size
            if version != 1 or present > 7 or bool(present & 1) != bool(size) or end > len(encoded):
                raise self._not_one(f"version {version}, {len(encoded)} bytes")
            message = _MESSAGE.decode(encoded[self._HEAD.size : end]) if present & 1 else None
            element, topic, error, reason, *rest = unpack_texts(encoded, end, 5 if present & 4 else 4)
            position = int(rest[0]) if rest else None
            return FailedMessage(message, element, topic if present & 2 else None, error, reason, position)
        except DECODE_ERRORS as failure:
            raise self._not_one(failure) from failure


class ReadFailureCoder(ValueCoder):
    """Version, coordinates, times, the body's size and the number of properties; the body; then texts."""

    value_type = ReadFailure
    _HEAD: Final = struct.Struct(">BqqqqII")

    def encode(self, value: ReadFailure) -> bytes:
        try:
            head = self._HEAD.pack(
                3,
                value.queue_id,
                value.queue_offset,
                value.born_timestamp_ms,
                value.store_timestamp_ms,
                len(value.body),
                len(value.properties),
            )
            texts = [
                value.topic,
                value.broker,
                value.message_id,
                value.keys,
                value.tags,
                value.error,
                value.reason,
                value.sharding_key,
                value.kind,
            ]
            for item in value.properties:
                texts += item
            return b"".join((head, value.body, pack_texts(texts)))
        except ENCODE_ERRORS as error:
            raise self._cannot_encode(value, error) from error

    def decode(self, encoded: bytes) -> ReadFailure:
        try:
            version, queue_id, queue_offset, born, store, size, count = self._HEAD.unpack_from(encoded)
            end = self._HEAD.size + size
            if version != 3 or end > len(encoded):
                raise self._not_one(f"version {version}, {len(encoded)} bytes")
            texts = unpack_texts(encoded, end, 9 + 2 * count)
            topic, broker, message_id, keys, tags, error, reason, sharding_key, kind = texts[:9]
            body = encoded[self._HEAD.size : end]
            properties = tuple(zip(texts[9::2], texts[10::2], strict=True))
            return ReadFailure(
                topic,
                broker,
                queue_id,
                queue_offset,
                message_id,
                keys,
                tags,
                born,
                store,
                error,
                reason,
                body,
                properties,
                sharding_key,
                kind,
            )
        except DECODE_ERRORS as failure:
            raise self._not_one(failure) from failure


class RecordBatchCoder(ValueCoder):
    """Version and counts; then timestamps; then each record and failure after its size."""

    value_type = RecordBatch
    _HEAD: Final = struct.Struct(">BII")
    _SIZE: Final = struct.Struct(">I")

    def encode(self, value: RecordBatch) -> bytes:
        encode_record, encode_failure, size = RecordCoder().encode, ReadFailureCoder().encode, self._SIZE.pack
        parts = [self._HEAD.pack(1, len(value.records), len(value.failures))]
        parts.append(struct.pack(f">{len(value.stamps)}q", *value.stamps))
        for raw in (*map(encode_record, value.records), *map(encode_failure, value.failures)):
            parts += (size(len(raw)), raw)
        return b"".join(parts)

    def decode(self, encoded: bytes) -> RecordBatch:
        try:
            version, records, failures = self._HEAD.unpack_from(encoded)
            if version != 1 or records * 8 > len(encoded) or failures > len(encoded):
                raise self._not_one(f"version {version}, {len(encoded)} bytes")
            stamps = list(struct.unpack_from(f">{records}q", encoded, self._HEAD.size))
            items, position = [], self._HEAD.size + 8 * records
            for _ in range(records + failures):
                (size,) = self._SIZE.unpack_from(encoded, position)
                items.append(encoded[position + 4 : position + 4 + size])
                position += 4 + size
            if position != len(encoded):
                raise self._not_one(f"{len(encoded)} bytes, {position} expected")
        except DECODE_ERRORS as failure:
            raise self._not_one(failure) from failure
        decode_record, decode_failure = RecordCoder().decode, ReadFailureCoder().decode
        return RecordBatch(
            [decode_record(raw) for raw in items[:records]], stamps, [decode_failure(raw) for raw in items[records:]]
        )

    def estimate_size(self, value: RecordBatch) -> int:
        """The sum of the stored sizes: Beam samples this, and encoding a batch to measure it would cost too much."""
        return sum(record.stored_size for record in value.records)


_MESSAGE: Final = MessageCoder()

_CODERS: Final[tuple[tuple[type, type[Coder]], ...]] = (
    (Record, RecordCoder),
    (Message, MessageCoder),
    (MessageQueue, MessageQueueCoder),
    (SendResult, SendResultCoder),
    (FailedMessage, FailedMessageCoder),
    (ReadFailure, ReadFailureCoder),
    (QueueDescriptor, QueueDescriptorCoder),
    (QueueRange, QueueRangeCoder),
    (Known, KnownCoder),
    (RecordBatch, RecordBatchCoder),
)


def register_coders() -> None:
    """Make Beam use these coders for our types. Idempotent."""
    for value_type, coder in _CODERS:
        registry.register_coder(value_type, coder)
    register_batch_coder()


register_coders()
