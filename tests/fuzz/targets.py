"""The targets: each takes any bytes and raises unless the decoder keeps what it promises.

Promised is, for every input: no error but the documented one, memory bounded by the input, what an encoder makes of
the result decodes to the same again, and the C extension and Python agree. That a call ends is for who runs it to
watch. The first byte chooses among options; the rest is the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from rmqio.errors import LocalError, WireError
from rmqio.model import Message, decode_properties, find_property
from rmqio.wire import accelerator
from rmqio.wire.batch import BatchMember, decode_batch
from rmqio.wire.bodies import BodyError
from rmqio.wire.command import Command, FrameDecoder, Serialization, decode_header, encode_frame, encode_header
from rmqio.wire.properties import encode_properties, is_reserved, user_properties
from tests.fuzz.avro_target import fuzz_avro
from tests.fuzz.checks import bounded, outcome, require, same_in_both
from tests.fuzz.stored_target import fuzz_stored
from tests.helpers.wire.batches import encode_batch
from tests.helpers.wire.stored_bytes import encode_member

MAX_FRAME_BYTES: Final = 4096
_ID: Final = "0123456789ABCDEF0123456789ABCDEF"


# ---- frames ---------------------------------------------------------------------------------------------------------


def fuzz_frame(data: bytes) -> None:
    """A stream of frames, in pieces of a size that the first byte gives: the same commands as in one piece."""
    stream = data[1:]
    step = 1 + max(data[0] if data else 0, len(stream) // 256)
    expected = same_in_both(lambda: _frames(stream))
    found = bounded(stream, lambda: _fed(stream, step))
    require(repr(found) == repr(expected), f"frames in pieces of {step} bytes differ", found, expected)
    for command, serialization in zip(found[0], (kind for kind, _, _ in _cut_frames(stream)[0]), strict=False):
        again = FrameDecoder()
        again.receive_data(encode_frame(command, Serialization(serialization)))
        require(repr(again.next_command()) == repr(command), "a frame made again differs", command)
        require(repr(again) == "<FrameDecoder 0 B buffered>", "bytes are left behind a whole frame", again)


def _fed(stream: bytes, step: int) -> tuple[list[Command], str | None]:
    """Commands, and the error that ended them."""
    decoder, commands = FrameDecoder(MAX_FRAME_BYTES), []
    for begin in range(0, len(stream), step):
        decoder.receive_data(stream[begin : begin + step])
        try:
            while (command := decoder.next_command()) is not None:
                commands.append(command)
        except WireError as error:
            require(repr(decoder).endswith(", failed>"), "a decoder that failed does not say so", decoder)
            return commands, str(error)
        require(decoder._unread < 4 + MAX_FRAME_BYTES, "more is kept than a frame may have", decoder)
    return commands, None


def _frames(stream: bytes) -> tuple[list[Command], str | None]:
    """As `_fed`, by the rules of the protocol notes."""
    frames, failure = _cut_frames(stream)
    commands: list[Command] = []
    for kind, header, body in frames:
        try:
            command = decode_header(header, kind)
        except WireError as error:
            return commands, str(error)
        command.body = body
        commands.append(command)
    return commands, failure


def _cut_frames(stream: bytes) -> tuple[list[tuple[int, bytes, bytes]], str | None]:
    """Serialization, header and body of each, and what is wrong with the one behind them."""
    frames: list[tuple[int, bytes, bytes]] = []
    while len(stream) >= 8:
        length, kind, header_size = int.from_bytes(stream[:4], "big", signed=True), stream[4], stream[5:8]
        size = int.from_bytes(header_size, "big")
        if not 4 <= length <= MAX_FRAME_BYTES:
            return frames, f"frame length {length} is not between 4 and {MAX_FRAME_BYTES}"
        if 4 + size > length:
            return frames, f"header length {size} exceeds its frame of {length} bytes"
        if len(stream) < 4 + length:
            break
        frames.append((kind - 256 if kind > 127 else kind, stream[8 : 8 + size], stream[8 + size : 4 + length]))
        stream = stream[4 + length :]
    return frames, None


# ---- headers --------------------------------------------------------------------------------------------------------


def fuzz_header(data: bytes) -> None:
    """A header in the serialization of the first byte: 0 JSON, 1 ROCKETMQ, others unknown."""
    serialization, header = (data[0] % 4 if data else 0), data[1:]
    command = same_in_both(lambda: outcome(lambda: decode_header(header, serialization), WireError), _all_of)
    bounded(header, lambda: outcome(lambda: decode_header(header, serialization), WireError))
    if not isinstance(command, Command):
        return
    require(not command.body, "a header gave a body", command)
    for text in (*command.ext, *command.ext.values()):
        require(type(text) is str, "a field is not text", command.ext)
    again = decode_header(encode_header(command, Serialization(serialization)), serialization)
    require(_all_of(again) == _all_of(command), "a header made again differs", _all_of(again), _all_of(command))


def _all_of(command: Any) -> str:
    """With what `repr` leaves out."""
    if not isinstance(command, Command):
        return repr(command)
    names = ("code", "ext", "opaque", "flag", "remark", "language", "version")
    return repr([getattr(command, name) for name in names])


# ---- batches --------------------------------------------------------------------------------------------------------


def fuzz_batch(data: bytes) -> None:
    """The members of a batch; and what both encoders make of messages like them."""
    members = bounded(data, lambda: outcome(lambda: decode_batch(data), BodyError))
    if isinstance(members, tuple):
        return
    made = b"".join(encode_member(member.body, member.properties, member.flag) for member in members)
    require(len(made) == len(data), "members do not take what the batch has", members)
    require(decode_batch(made) == members, "a batch made again differs", members)
    messages = [_message_of(member) for member in members]
    encoded = same_in_both(lambda: outcome(lambda: encode_batch(messages, [_ID] * len(messages)), LocalError))
    if isinstance(encoded, bytes):
        for message, (flag, body, properties) in zip(messages, decode_batch(encoded), strict=True):
            require(flag == 0 and body == message.body, "the body of a member differs", message, body)
            _require_properties(message, properties)


def _message_of(member: BatchMember) -> Message:
    """With the properties of a member, as far as anybody may give them."""
    properties = decode_properties(member.properties)
    return Message(
        member.body,
        tags=properties.get("TAGS"),
        keys=properties.get("KEYS", "").split(),
        sharding_key=properties.get("__SHARDINGKEY"),
        properties=user_properties(properties),
        delay_level=3 if "DELAY" in properties else None,
    )


# ---- properties -----------------------------------------------------------------------------------------------------


def fuzz_properties(data: bytes) -> None:
    """Properties in their stored form; and a message whose texts are cut from the same bytes, legal or not."""
    found = bounded(data, lambda: decode_properties(data))
    names = [item.partition(b"\x01")[0] for item in data.split(b"\x02") if b"\x01" in item]
    for name, value in found.items():
        raw = name.encode("utf-8", "surrogateescape")
        # One that comes twice is the last one for the whole and the first one for a look-up.
        if names.count(raw) == 1 and name.isprintable():
            require(find_property(data, name) == value, f"a look-up of {name!r} differs", found)
    for name in ("KEYS", "TAGS", "no such"):
        require((find_property(data, name) is None) == (name not in found), f"a look-up of {name!r} differs", found)
    legal = Message(b"x", properties=user_properties(found))
    encoded = _encoded(legal)
    if isinstance(encoded, bytes):
        _require_properties(legal, encoded)
    texts = [text.decode("utf-8", "surrogateescape") for text in data.split(b"\x00")]
    tags, sharding_key, value, *keys = [*texts, *["k"] * 4][: max(4, len(texts))]
    _encoded(Message(b"x", tags=tags, sharding_key=sharding_key, keys=keys, properties={value: tags}))


def _encoded(message: Message) -> Any:
    encoded = outcome(lambda: encode_properties(message, message_id=_ID), LocalError)
    if accelerator.usual_properties is not None:
        usual = accelerator.usual_properties(message, _ID)
        require(
            usual is None or (isinstance(encoded, bytes) and usual.encode() == encoded),
            "Python and C differ",
            encoded,
            usual,
        )
    return encoded


def _require_properties(message: Message, encoded: bytes) -> None:
    """Requires that what was encoded is the message's, and no more."""
    found = decode_properties(encoded)
    require(found.pop("UNIQ_KEY") == _ID, "the id differs", encoded)
    require(found.pop("TAGS", None) == message.tags, "the tag differs", encoded)
    require(found.pop("KEYS", "").split() == list(message.keys), "the keys differ", encoded)
    require(found.pop("__SHARDINGKEY", None) == message.sharding_key, "the sharding key differs", encoded)
    require(found == message.properties, "user properties differ", found, message.properties)
    require(not any(map(is_reserved, found)), "a reserved name went through", found)


# ---- all ------------------------------------------------------------------------------------------------------------

TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = MappingProxyType(
    {
        "frame": fuzz_frame,
        "header": fuzz_header,
        "stored": fuzz_stored,
        "batch": fuzz_batch,
        "properties": fuzz_properties,
        "avro": fuzz_avro,
    }
)
