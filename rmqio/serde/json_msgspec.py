"""Decodes JSON bodies to a type with msgspec: several times faster, for bodies that fit.

`exact` decides what a body is. msgspec accepts some bodies that it does not: those are not usual
(`MsgspecDecoder.is_usual`). `exact` decodes or reports bodies that msgspec refuses.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import typing
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, time
from decimal import Decimal
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, NotRequired, Required, Union

import msgspec
from msgspec.structs import astuple

from rmqio.serde.json_exact import MAX_DEPTH, decimal_of
from rmqio.serde.json_types import (
    Anything,
    Entries,
    Items,
    Leaf,
    Member,
    Node,
    Object,
    OneOf,
    Plan,
    is_absent,
    is_named_tuple,
    is_typed_dict,
)
from rmqio.serde.strict_json import finite_float, may_be_rounded

# The types that msgspec decodes for a plan, and the functions that make the user's values of them.
#
# Objects are decoded to msgspec's structs, from which NamedTuples and dataclasses are made. msgspec knows such
# classes, and enums, itself, but it reads NamedTuples from arrays only, and keeps in the others what Beam's pickler
# cannot copy to a worker. Decimals stay as they are written, because msgspec takes "NaN" and "4_2" for some.

Convert = Callable[[Any], Any]
_make_typed_dict: Final[Any] = typing.TypedDict  # type checkers know its call with literals only
_IMMUTABLE: Final = frozenset({NoneType, bool, int, float, str, bytes})


class Decoded(NamedTuple):
    """The type that msgspec decodes a node to, and the conversion of its values."""

    type: Any
    convert: Convert | None = None
    """Makes the value; None: it is the value."""
    all: Callable[[Iterable[Any]], Iterable[Any]] | None = None
    """The same of many, if that is faster."""

    def convert_all(self, values: Iterable[Any]) -> Iterable[Any]:
        if self.all is not None:
            return self.all(values)
        return values if self.convert is None else map(self.convert, values)


class Structs:
    """Makes a struct for each class. No class may contain itself: msgspec would look for the struct by its name."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._made: dict[type, Decoded] = {}

    def of(self, node: Node) -> Decoded:
        match node:
            case Anything():
                return Decoded(Any)
            case Leaf(cls):
                return Decoded(msgspec.Raw, _decimal) if cls is Decimal else Decoded(cls)
            case Member(cls, values):
                members = None if cls is None else {each.value: each for each in cls}.__getitem__
                return Decoded(Literal[values], members)
            case Items(item, is_tuple):
                return _items(self.of(item), is_tuple)
            case Entries(value):
                return _entries(self.of(value))
            case Object(cls):
                if cls not in self._made:
                    make = self._typed_dict if is_typed_dict(cls) else self._struct
                    self._made[cls] = make(cls)
                return self._made[cls]
            case OneOf(members):
                if Leaf(Decimal) in members:
                    return Decoded(msgspec.Raw, _decimal_or_null if Leaf(NoneType) in members else _decimal)
                return _union([(each, self.of(each)) for each in members])

    def _typed_dict(self, cls: type) -> Decoded:
        fields = {field.name: (self.of(field.node), field.is_required) for field in self._plan.fields[cls]}
        for name in fields:
            msgspec.json.encode(name)  # else it overlooks names that are not ASCII: its pull request 1126
        hints = {name: (Required if need else NotRequired)[each.type] for name, (each, need) in fields.items()}
        converts = [(name, each.convert) for name, (each, _) in fields.items() if each.convert is not None]

        def convert(value: dict[str, Any]) -> dict[str, Any]:
            for name, convert_field in converts:
                if name in value:
                    value[name] = convert_field(value[name])
            return value

        made = _make_typed_dict(cls.__name__, hints)
        return Decoded(made, convert if converts else None)

    def _struct(self, cls: type) -> Decoded:
        fields = self._plan.fields[cls]
        inner = [self.of(field.node) for field in fields]
        is_plain = _is_plain(cls)
        defaults = _defaults(cls) if is_plain else {}
        columns: list[tuple[str, Any, Any]] = []
        after: list[After] = []
        for at, (field, decoded) in enumerate(zip(fields, inner, strict=True)):
            make_default = defaults.get(field.name)
            default: Any = msgspec.NODEFAULT if field.is_required else msgspec.UNSET
            if make_default is not None and decoded.convert is None and type(make_default()) in _IMMUTABLE:
                default = make_default()
            elif make_default is not None or decoded.convert is not None:
                after.append((at, decoded.convert, make_default))
            columns.append((f"f{at}", decoded.type, default))
        struct = msgspec.defstruct(
            cls.__name__,
            columns,
            kw_only=True,  # so that fields with defaults can be anywhere
            gc=False,
            rename={f"f{at}": field.name for at, field in enumerate(fields)},
        )
        if not is_plain:
            return Decoded(struct, _by_name(cls, [field.name for field in fields], [each.convert for each in inner]))
        new: Any = cls
        create: Convert = functools.partial(tuple.__new__, cls) if is_named_tuple(cls) else lambda values: new(*values)
        if after:
            return Decoded(struct, _by_place(create, after))
        if is_named_tuple(cls):
            make: Any = tuple.__new__  # called by `map` itself, which costs less than a partial
            several = lambda them: map(make, itertools.repeat(cls), map(astuple, them))  # noqa: E731
            return Decoded(struct, lambda it: create(astuple(it)), several)
        return Decoded(struct, lambda it: new(*astuple(it)), lambda them: itertools.starmap(new, map(astuple, them)))


After = tuple[int, Convert | None, Callable[[], Any] | None]
"""The treatment of a field: its place, its conversion, and its default factory."""


def _is_plain(cls: Any) -> bool:
    """Whether the constructor is Python's own, which takes the fields in their order, with the defaults they show."""
    if is_named_tuple(cls):
        own = next((each for each in cls.__mro__ if each.__bases__ == (tuple,)), None)
        return own is not None and cls.__new__ is own.__new__
    return (
        cls.__init__.__code__.co_qualname.startswith("__create_fn__.")
        and cls.__new__ is object.__new__
        and type(cls).__call__ is type.__call__
        and not any(field.kw_only for field in dataclasses.fields(cls))
    )


def _defaults(cls: Any) -> dict[str, Callable[[], Any]]:
    """Return the default factories of the fields that have one."""
    if is_named_tuple(cls):
        return {name: _constant(value) for name, value in cls._field_defaults.items()}
    made: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if not is_absent(field.default_factory):
            made[field.name] = field.default_factory
        elif not is_absent(field.default):
            made[field.name] = _constant(field.default)
    return made


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _by_place(create: Callable[[Sequence[Any]], Any], after: Sequence[After]) -> Convert:
    def convert(struct: Any) -> Any:
        values = list(astuple(struct))
        for at, convert_field, make_default in after:
            value = values[at]
            if value is msgspec.UNSET and make_default is not None:
                values[at] = make_default()
            elif convert_field is not None:
                values[at] = convert_field(value)
        return create(values)

    return convert


def _by_name(cls: type, names: Sequence[str], converts: Sequence[Convert | None]) -> Convert:
    """Leaves out what the body does not have, so that the constructor's defaults hold."""

    def convert(struct: Any) -> Any:
        return cls(
            **{
                name: value if convert_field is None else convert_field(value)
                for name, convert_field, value in zip(names, converts, astuple(struct), strict=True)
                if value is not msgspec.UNSET
            }
        )

    return convert


def _items(item: Decoded, is_tuple: bool) -> Decoded:
    hint = tuple[item.type, ...] if is_tuple else list[item.type]  # type: ignore[name-defined]
    if item.convert is None:
        return Decoded(hint)
    return Decoded(hint, lambda values: (tuple if is_tuple else list)(item.convert_all(values)))


def _entries(value: Decoded) -> Decoded:
    hint, convert = dict[str, value.type], value.convert  # type: ignore[name-defined]
    return Decoded(hint, None if convert is None else lambda them: {name: convert(each) for name, each in them.items()})


def _union(members: Sequence[tuple[Node, Decoded]]) -> Decoded:
    converts = {
        cls: decoded.convert for node, decoded in members if decoded.convert for cls in _decoded_types(node, decoded)
    }

    def convert(value: Any) -> Any:
        convert_member = converts.get(type(value))
        return value if convert_member is None else convert_member(value)

    hint: Any = Union.__getitem__(tuple(each.type for _, each in members))
    return Decoded(hint, convert if converts else None)


def _decoded_types(node: Node, decoded: Decoded) -> set[type]:
    """The types of the values that msgspec returns for a member of a union that is converted."""
    match node:
        case Member(_, values):
            return {type(each) for each in values}
        case Object(cls) if not is_typed_dict(cls):
            return {decoded.type}
        case Items(_, is_tuple):
            return {tuple if is_tuple else list}
        case _:
            return {dict}


def _decimal(raw: msgspec.Raw) -> Decimal:
    """Raises ValueError also for what may be a decimal, in text with escapes."""
    text = bytes(raw).decode()
    if text.startswith('"'):
        return decimal_of(text[1:-1])
    return decimal_of("0" if text == "-0" else text)  # Python's parser has no negative zero but as a float


def _decimal_or_null(raw: msgspec.Raw) -> Decimal | None:
    return None if bytes(raw) == b"null" else _decimal(raw)


_SHORT: Final = 2 * MAX_DEPTH
"""Bytes of a body that cannot be nested too deeply: each level has two brackets."""
_TOO_FINE: Final = re.compile(rb"\.[0-9]{7}")


class MsgspecDecoder:
    """Decodes usual bodies to the type of a plan, which must not contain itself."""

    __slots__ = ("_convert", "_convert_all", "_decode", "_decode_exactly", "_has_times")

    def __init__(self, plan: Plan) -> None:
        self._has_times: Final = plan.has(datetime, time)
        found = Structs(plan).of(plan.root)
        self._decode: Final = msgspec.json.Decoder(found.type).decode
        self._decode_exactly: Final = (
            msgspec.json.Decoder(found.type, float_hook=finite_float).decode if Anything() in plan.nodes() else None
        )
        self._convert: Final = found.convert
        self._convert_all: Final = found.convert_all

    def decode(self, body: bytes) -> Any:
        """Raises any exception if the body does not fit."""
        value = self._decoded(body)
        return value if self._convert is None else self._convert(value)

    def decode_all(self, bodies: Sequence[bytes]) -> list[Any]:
        """Raises any exception if one of them does not fit."""
        decode = self._decode if self._decode_exactly is None else self._decoded
        return list(self._convert_all(map(decode, bodies)))

    def _decoded(self, body: bytes) -> Any:
        """Without a call for each number of a field of any type, if a double gives back all numbers."""
        if self._decode_exactly is not None and may_be_rounded(body):
            return self._decode_exactly(body)
        return self._decode(body)

    def is_usual(self, body: bytes) -> bool:
        """Whether `decode` returns nothing else than `exact` does, if it returns."""
        return (
            (body.isascii() or _is_utf8(body))  # it does not look at what it leaves out
            and (len(body) <= _SHORT or body.count(b"[") + body.count(b"{") <= MAX_DEPTH)
            and not (self._has_times and _may_be_inexact(body))
        )

    def are_usual(self, bodies: Sequence[bytes]) -> bool:
        """The same of all."""
        whole = b"\n".join(bodies)  # a character that a body does not end does not go on in the next
        return (
            (whole.isascii() or _is_utf8(whole))
            and (max(map(len, bodies), default=0) <= _SHORT or all(map(self.is_usual, bodies)))
            and not (self._has_times and _may_be_inexact(whole))
        )


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _may_be_inexact(body: bytes) -> bool:
    """Whether it may have a time with more digits than microseconds, which is rounded, or with a NUL, which ends it."""
    return _TOO_FINE.search(body) is not None or (b"\\" in body and b"\\u00" in body)
