"""Encodes message properties. The broker checks almost none of this.

Stored form: `name \\x01 value \\x02` repeated, UTF-8, without any escaping.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, cast

from rmqio.errors import LocalError
from rmqio.model import DELAY, KEYS, SHARDING_KEY, TAGS, TIMER_DELIVER_MS, UNIQ_KEY, Message

MAX_PROPERTIES_BYTES: Final = 32_000
"""The stored length is an int16, and the broker adds CLUSTER, MSG_REGION, TRACE_ON and, in a single send, UNIQ_KEY:
32,700 bytes of ours were refused, 32,000 accepted. This also leaves room for long cluster and region names.
"""

MAX_DELAY_LEVEL: Final = 18

# STRING_HASH_SET of MessageConst.java (Java's producers refuse these too) ...
_RESERVED_IN_JAVA = """
    TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
    BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME UNIQ_KEY MAX_RECONSUME_TIMES
    CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET DUP_INFO EXTEND_UNIQ_INFO
    INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE
    INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS
    TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC
    DLQ_ORIGIN_MESSAGE_ID
"""
# ... and names that are not in it although the broker or the clients act on them.
_RESERVED_BESIDES = """
    __SHARDINGKEY INNER_NUM INNER_BASE INNER_MULTI_DISPATCH CHECK_IMMUNITY_TIME_IN_SECONDS TRANSACTION_CHECK_TIMES
    __transactionId__ PROPERTY_FORWARD_QUEUE_ID REDIRECT TRACE_CONTEXT _SYS_MSG_PRIORITY_ __LITE_TOPIC __CRC32#
"""
RESERVED_NAMES: Final = frozenset((_RESERVED_IN_JAVA + _RESERVED_BESIDES).split())
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."
"""Names with this prefix are also reserved."""

_NOTHING: Mapping[str, str] = MappingProxyType({})


def is_reserved(name: str) -> bool:
    """Return whether RocketMQ reserves this property name."""
    return name in RESERVED_NAMES or name.startswith(TRANSIENT_PREFIX)


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a received `Record` that can be sent again: without reserved names and empty values."""
    return {name: value for name, value in properties.items() if name and value and not is_reserved(name)}


def encode_properties(message: Message, *, message_id: str | None, extra: Mapping[str, str] = _NOTHING) -> bytes:
    """Return the stored form of a message's properties.

    Args:
      message: its tags, keys, sharding key, delay and user properties are encoded.
      message_id: the value of UNIQ_KEY; None: the broker generates one (in single sends only).
      extra: properties set by the client itself (WAIT, its own id etc.), so reserved names are allowed. They override
        user properties of the same name.

    Raises:
      LocalError: names the property and the reason. Anything that the broker would drop, cut or misread is refused.
    """
    _, _, tags, keys, properties, sharding_key, delay_level, deliver_at_ms = message
    # Added with "+", which refuses non-strings, and checked with "in", which is the cheapest check: this runs for each
    # message sent.
    text = ""
    try:
        if message_id is not None:
            if not message_id or "\x01" in message_id or "\x02" in message_id:
                raise _explain(message, message_id, extra)
            text = "UNIQ_KEY\x01" + message_id + "\x02"
        if keys:
            joined = " ".join(keys)
            if joined.split() != list(keys) or "\x01" in joined or "\x02" in joined:
                raise _explain(message, message_id, extra)
            text += "KEYS\x01" + joined + "\x02"
        if tags is not None:
            if not tags or "\x01" in tags or "\x02" in tags:
                raise _explain(message, message_id, extra)
            text += "TAGS\x01" + tags + "\x02"
        if sharding_key is not None:
            if not sharding_key or "\x01" in sharding_key or "\x02" in sharding_key:
                raise _explain(message, message_id, extra)
            text += "__SHARDINGKEY\x01" + sharding_key + "\x02"
        if delay_level is not None or deliver_at_ms is not None:
            text += _delay(delay_level, deliver_at_ms)
        if properties:
            for name, value in properties.items():
                if not value or "\x01" in value or "\x02" in value:
                    raise _explain(message, message_id, extra)
                if name not in extra:
                    text += _user_name(name) + value + "\x02"
        if extra:
            for name, value in extra.items():
                text += _property(name, value)
        encoded = text.encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise _explain(message, message_id, extra) from error
    if len(encoded) > MAX_PROPERTIES_BYTES:
        raise LocalError(
            f"message properties take {len(encoded)} bytes; at most {MAX_PROPERTIES_BYTES} are allowed"
            " (the broker stores 32767, including its own additions)"
        )
    return encoded


def _delay(delay_level: int | None, deliver_at_ms: int | None) -> str:
    if deliver_at_ms is None:
        if not isinstance(delay_level, int) or not 1 <= delay_level <= MAX_DELAY_LEVEL:
            raise LocalError(f"delay_level {delay_level!r} is not a level from 1 to {MAX_DELAY_LEVEL}")
        return _property(DELAY, str(int(delay_level)))
    if delay_level is not None:
        raise LocalError("message has both delay_level and deliver_at_ms; the broker would ignore deliver_at_ms")
    if not isinstance(deliver_at_ms, int) or deliver_at_ms <= 0:
        raise LocalError(f"deliver_at_ms {deliver_at_ms!r} is not a Unix time in milliseconds")
    return _property(TIMER_DELIVER_MS, str(int(deliver_at_ms)))


def _property(name: str, value: str) -> str:
    """Return a property in its stored form. Raises LocalError, naming it, unless name and value can be stored."""
    for what, text in (("name", name), ("value", value)):
        if not isinstance(text, str):
            raise LocalError(f"message property {name!r}: its {what} must be a str, not {type(text).__name__}")
        if not text:
            raise LocalError(f"message property {name!r}: its {what} is empty; the broker would drop the property")
        for separator in ("\x01", "\x02"):
            if separator in text:
                raise LocalError(f"message property {name!r}: holds the separator {separator!r}; it cannot be escaped")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise LocalError(f"message property {name!r}: its {what} is not UTF-8 text ({error.reason})") from error
    return f"{name}\x01{value}\x02"


# Names repeat across messages, so each is checked once.
@lru_cache(maxsize=1024)
def _user_name(name: str) -> str:
    """Return a name that users may set, with its separator."""
    checked = _property(name, "any").removesuffix("any\x02")
    if is_reserved(name):
        raise LocalError(
            f"message property {name!r}: the name is reserved;"
            " use the fields of Message (keys, tags ...), and user_properties() to send a record's properties again"
        )
    return checked


def _explain(message: Message, message_id: str | None, extra: Mapping[str, str]) -> LocalError:
    """Return the error for the faulty property."""
    try:
        for key in message.keys:
            _property(KEYS, key)
            if key.split() != [key]:
                return LocalError(f"message property {KEYS!r}: key {key!r} holds white space, which separates keys")
        fixed = {UNIQ_KEY: message_id, TAGS: message.tags, SHARDING_KEY: message.sharding_key}
        for name, value in (*fixed.items(), *(message.properties or {}).items(), *extra.items()):
            if value is not None or name not in fixed:
                _property(name, cast(str, value))
    except LocalError as error:
        return error
    return LocalError("message properties cannot be encoded")
