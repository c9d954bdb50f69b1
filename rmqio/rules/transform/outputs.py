"""The elements that `MatchRules` gives, and their coders."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from apache_beam.coders import FastPrimitivesCoder, registry

from rmqio.model import Record
from rmqio.transforms.parts import DECODE_ERRORS, ENCODE_ERRORS, RecordCoder, ValueCoder


class Match(NamedTuple):
    """A rule that a message matches."""

    message: Any
    """The element; None in a `MatchedMessage`, which has it itself."""
    rule_id: str
    title: str
    level: str
    tags: tuple[str, ...]
    ruleset_version: str
    """The hash of the rules that were in force."""
    atoms: tuple[tuple[str, str, Any], ...]
    """The reasons: field, condition, and the value of the message."""


class MatchedMessage(NamedTuple):
    """A message with the rules that it matches: one or more."""

    message: Any
    ruleset_version: str
    matches: tuple[Match, ...]


_ANY: Final = FastPrimitivesCoder()
_RECORD: Final = RecordCoder()
_HEAD: Final = struct.Struct(">BBI")
_BYTES, _RECORDS, _OTHERS = 0, 1, 2


class _MessageAndRest(ValueCoder):
    """Version, kind and size of the message; the message; then the rest, of plain values."""

    def is_deterministic(self) -> bool:
        return False  # a message can be a dict

    def _encoded(self, message: Any, rest: tuple[Any, ...]) -> bytes:
        try:
            if isinstance(message, bytes):
                kind, raw = _BYTES, message
            elif isinstance(message, Record):
                kind, raw = _RECORDS, _RECORD.encode(message)
            else:
                kind, raw = _OTHERS, _ANY.encode(message)
            return _HEAD.pack(1, kind, len(raw)) + raw + bytes(_ANY.encode(rest))
        except ENCODE_ERRORS as error:
            raise self._cannot_encode(message, error) from error

    def _decoded(self, encoded: bytes) -> tuple[Any, tuple[Any, ...]]:
        try:
            version, kind, size = _HEAD.unpack_from(encoded)
            end = _HEAD.size + size
            if version != 1 or kind > _OTHERS or end > len(encoded):
                raise self._not_one(f"version {version}, {len(encoded)} bytes")
            raw = encoded[_HEAD.size : end]
            message = raw if kind == _BYTES else _RECORD.decode(raw) if kind == _RECORDS else _ANY.decode(raw)
            return message, _ANY.decode(encoded[end:])
        except DECODE_ERRORS as error:
            raise self._not_one(error) from error


class MatchCoder(_MessageAndRest):
    """The message, then the fields of the match."""

    value_type = Match

    def encode(self, value: Match) -> bytes:
        return self._encoded(value[0], tuple(value[1:]))

    def decode(self, encoded: bytes) -> Match:
        message, rest = self._decoded(encoded)
        return Match(message, *rest)


class MatchedMessageCoder(_MessageAndRest):
    """The message, then the version and the fields of each match."""

    value_type = MatchedMessage

    def encode(self, value: MatchedMessage) -> bytes:
        return self._encoded(value[0], (value[1], *(tuple(each[1:]) for each in value[2])))

    def decode(self, encoded: bytes) -> MatchedMessage:
        message, rest = self._decoded(encoded)
        return MatchedMessage(message, rest[0], tuple(Match(None, *each) for each in rest[1:]))


registry.register_coder(Match, MatchCoder)
registry.register_coder(MatchedMessage, MatchedMessageCoder)
