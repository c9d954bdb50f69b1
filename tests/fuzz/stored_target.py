"""Stored messages, as they come and put around bodies of any bytes, so that a sum or a size need not be guessed."""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

from rmqio.errors import CorruptMessage
from rmqio.model import Record
from rmqio.wire.bodies import COMPRESSED, LZ4, ZLIB, ZSTD, compress, compression_flags
from rmqio.wire.stored import INNER_BATCH, NEED_UNWRAP, Decoded, decode_records
from tests.fuzz.checks import KIB, bounded, outcome, require, same_in_both
from tests.helpers.wire.stored_bytes import V1, V2, Stored

MAX_BODY_BYTES: Final = 64 * KIB
"""The bytes that a message may take when decompressed, here."""
_INNER: Final = NEED_UNWRAP | INNER_BATCH
_KINDS: Final = (ZLIB, LZ4, ZSTD)
MODES: Final = (
    "as it is",
    "a body",
    "a batch",
    "a compressed body",
    "a compressed batch",
    "compressed already",
    "a batch of compressed members",
    "behind a message",
)
"""The kinds of input behind the first byte."""
_SIZE_AND_MAGIC: Final = struct.Struct(">iI")


def options(mode: str, *, check_crc: bool = True, topic: bool = True, kind: int = ZLIB) -> bytes:
    """The first byte of an input."""
    return bytes([MODES.index(mode) | check_crc << 3 | topic << 4 | _KINDS.index(kind) << 5])


def fuzz_stored(data: bytes) -> None:
    """A pull's body. The first byte chooses the mode and the compression, and what the caller asks for."""
    choice, given = data[0] if data else 0, data[1:]
    stream = _stream(MODES[choice & 7], given, _KINDS[(choice >> 5) % 3])
    arguments: dict[str, Any] = {
        "broker": "b",
        "topic": "orders" if choice & 16 else None,
        "check_crc": bool(choice & 8),
        "max_body_bytes": MAX_BODY_BYTES,
        "min_offset": 2,
    }

    def decode() -> Any:
        return outcome(lambda: decode_records(stream, **arguments), CorruptMessage)

    found = same_in_both(decode, _all_of)
    # A body is there in parts and whole when it is decompressed, and in the records.
    bodies = MAX_BODY_BYTES * (3 + len(found.records) + len(found.corrupt)) if isinstance(found, Decoded) else 0
    bounded(stream, decode, plus=256 * KIB + max(bodies, 3 * MAX_BODY_BYTES + _at_most(stream)))
    if isinstance(found, Decoded):
        _require_all(stream, found)
        for record in found.records:
            _require_sound(record)


def _stream(mode: str, given: bytes, kind: int) -> bytes:
    if mode == "as it is":
        return given
    if mode == "behind a message":
        return Stored().encode() + given
    flags = {
        "a body": 0,
        "a batch": _INNER,
        "a compressed body": compression_flags(kind),
        "a compressed batch": compression_flags(kind) | _INNER,
        "compressed already": compression_flags(kind),
        "a batch of compressed members": compression_flags(kind) | _INNER,
    }[mode]
    if mode in ("a compressed body", "a compressed batch"):
        given = compress(given, kind=kind)
    return Stored(given, sys_flag=flags).encode()


def _at_most(stream: bytes) -> int:
    """Returns the bytes that all messages of a stream may take when decompressed."""
    return MAX_BODY_BYTES * len(_cuts(stream))


def _cuts(stream: bytes) -> list[bytes]:
    """The messages, by the sizes that they begin with, up to what is none."""
    cuts: list[bytes] = []
    while len(stream) >= _SIZE_AND_MAGIC.size:
        size, magic = _SIZE_AND_MAGIC.unpack_from(stream)
        if magic not in (V1, V2) or not 91 <= size <= len(stream):
            break
        cuts.append(stream[:size])
        stream = stream[size:]
    return cuts


def _require_all(stream: bytes, found: Decoded) -> None:
    """Nothing is left out: each message is a record or corrupt, or an inner batch."""
    cuts = _cuts(stream)
    require(sum(map(len, cuts)) == len(stream), "there are bytes behind the messages", cuts)
    if not any(int.from_bytes(cut[36:40], "big") & _INNER == _INNER for cut in cuts):
        sizes = [record.stored_size for record in found.records] + [len(error.raw) for error in found.corrupt]
        require(sorted(sizes) == sorted(map(len, cuts)), "messages were left out, or made up", sizes, cuts)
    for error in found.corrupt:
        require(error.raw, "a corrupt message without its bytes", error)


def _require_sound(record: Record) -> None:
    """All that users ask of a record has an answer; and written again it decodes to the same."""
    require(not record.sys_flag & COMPRESSED or len(record.body) <= MAX_BODY_BYTES, "a body beyond the limit", record)
    for name in ("properties", "tags", "keys", "sharding_key", "message_id", "born_host", "store_host"):
        getattr(record, name)
    sys_flag = record.sys_flag & ~(COMPRESSED | _INNER)
    topic = record.topic.encode()
    stored = Stored(
        record.body,
        topic,
        record.raw_properties,
        V1 if len(topic) < 256 else V2,
        None,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.commit_log_offset,
        sys_flag,
        record.born_timestamp_ms,
        record.raw_born_host,
        record.store_timestamp_ms,
        record.raw_store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
    ).encode()
    again = decode_records(stored, broker="b", topic=record.topic)
    crc = zlib.crc32(record.body) & 0x7FFFFFFF
    wanted = record._replace(sys_flag=sys_flag, body_crc=crc, stored_size=len(stored))
    require(again.records == [wanted] and not again.corrupt, "a message made again differs", again, wanted)


def _all_of(found: Any) -> object:
    """With what the text of an error leaves out."""
    if not isinstance(found, Decoded):
        return repr(found)
    return repr(found.records), [(str(error), error.raw, error.next_offset) for error in found.corrupt]
