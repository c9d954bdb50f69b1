"""The types that JSON bodies can be decoded to, and what of them must be known to decode: the plan of a type.

A plan is made once, where the pipeline is built, and is pickled with the deserializer. The annotations of a class of
the main program may be text, which its copy in a worker cannot evaluate: the names in it are those of the main program.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import inspect
import types
import typing
import uuid
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any, Final, Literal, NamedTuple, NotRequired, Required, TypeAlias

from rmqio.errors import LocalError

# The fields of NamedTuples, dataclasses and TypedDicts.

_QUALIFIERS: Final = {Required, NotRequired, getattr(typing, "ReadOnly", Required)}


def is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_typed_dict(cls: type) -> bool:
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def is_absent(default: object) -> bool:
    """Whether a dataclass's field has no such default.

    Not `is MISSING`: a class of the main program is copied to a worker together with its own copy of MISSING.
    """
    return isinstance(default, type(dataclasses.MISSING))


def annotations_of(cls: type) -> dict[str, tuple[Any, bool]]:
    """The annotation of each field, and whether it is required. Raises `LocalError` if one cannot be evaluated."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError) as error:
        raise LocalError(f"the annotations of {cls.__qualname__} cannot be evaluated: {error}") from error
    if is_named_tuple(cls):
        defaults = cls._field_defaults  # type: ignore[attr-defined]
        return {name: (hints.get(name, Any), name not in defaults) for name in cls._fields}  # type: ignore[attr-defined]
    if is_typed_dict(cls):
        # The qualifiers come first: in annotations that are text, Python has not seen them.
        required = cls.__required_keys__  # type: ignore[attr-defined]
        marks = {name: _marks(hint) for name, hint in hints.items()}
        return {
            name: (hint, Required in marks[name] or (name in required and NotRequired not in marks[name]))
            for name, hint in hints.items()
        }
    return {
        field.name: (hints.get(field.name, Any), is_absent(field.default) and is_absent(field.default_factory))
        for field in dataclasses.fields(cls)
        if field.init
    }


def _marks(hint: Any) -> set[Any]:
    found = set()
    while (origin := typing.get_origin(hint)) in _QUALIFIERS or origin is typing.Annotated:
        found.add(origin)
        hint = typing.get_args(hint)[0]
    return found


def require_constructor(cls: type, fields: Mapping[str, object]) -> None:
    """Raises `LocalError` unless the constructor takes the fields by their names, and needs nothing else."""
    if is_typed_dict(cls):
        return
    try:
        parameters = inspect.signature(cls).parameters
    except (TypeError, ValueError) as error:
        raise LocalError(f"the constructor of {cls.__qualname__} cannot be inspected: {error}") from error
    kinds = {each.kind for each in parameters.values()}
    needed = {
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }
    if more := needed - set(fields):
        raise LocalError(f"the constructor of {cls.__qualname__} needs {', '.join(sorted(more))}, which is not a field")
    if (less := set(fields) - set(parameters)) and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise LocalError(f"the constructor of {cls.__qualname__} does not take its field {', '.join(sorted(less))}")


def unwrapped(hint: Any) -> Any:
    """Return the type without the parts that say nothing about the value: `Annotated`, `Required`, names of types."""
    while True:
        origin = typing.get_origin(hint)
        if origin in _QUALIFIERS or origin is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # from Python 3.12 on
            hint = hint.__value__
        else:
            return hint


TEXT: Final = "text"
WHOLE: Final = "a whole number"
NUMBER: Final = "a number"
TRUTH: Final = "true or false"
NULL: Final = "null"
ARRAY: Final = "an array"
OBJECT: Final = "an object"

_KINDS: Final[dict[type, tuple[str, ...]]] = {
    str: (TEXT,),
    int: (WHOLE,),
    float: (NUMBER, WHOLE),
    bool: (TRUTH,),
    types.NoneType: (NULL,),
    decimal.Decimal: (WHOLE, NUMBER, TEXT),
    datetime.datetime: (TEXT,),
    datetime.date: (TEXT,),
    datetime.time: (TEXT,),
    uuid.UUID: (TEXT,),
    bytes: (TEXT,),
}
_SUPPORTED: Final = (
    "NamedTuples, dataclasses, TypedDicts, str, int, float, bool, None, Decimal, datetime, date, time, UUID, bytes, "
    "enums and Literals of text or whole numbers, list, tuple[X, ...], dict[str, X], unions and Any"
)
_INT64: Final = range(-(2**63), 2**63)


@dataclasses.dataclass(frozen=True, slots=True)
class Anything:
    """Any JSON value, as it is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Leaf:
    """A value of one of the types in `_KINDS`."""

    type: type


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A member of an enum, by its value, or one of the values of a `Literal`, for which `type` is None."""

    type: type[enum.Enum] | None
    values: tuple[str | int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Items:
    item: Node
    is_tuple: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Entries:
    value: Node


@dataclasses.dataclass(frozen=True, slots=True)
class Object:
    """A NamedTuple, dataclass or TypedDict. Its fields are in the plan, because it can contain itself."""

    type: type


@dataclasses.dataclass(frozen=True, slots=True)
class OneOf:
    """A union. Each kind of JSON value belongs to one member; if float and int are both, the whole numbers to int."""

    members: tuple[Node, ...]


Node: TypeAlias = Anything | Leaf | Member | Items | Entries | Object | OneOf

_BOTH_NUMBERS: Final[set[Node]] = {Leaf(int), Leaf(float)}


class Field(NamedTuple):
    name: str
    node: Node
    is_required: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The facts about a type that decide how it is decoded."""

    root: Node
    fields: dict[type, tuple[Field, ...]]

    def nodes(self) -> set[Node]:
        """All nodes, each once."""
        found: set[Node] = set()
        left = [self.root, *(field.node for fields in self.fields.values() for field in fields)]
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left += _inside(node)
        return found

    def has(self, *leaves: type) -> bool:
        return any(Leaf(each) in self.nodes() for each in leaves)

    def contains_itself(self) -> bool:
        """Whether a class contains itself, on whatever way."""
        uses = {cls: _classes_in([field.node for field in fields]) for cls, fields in self.fields.items()}
        while True:
            more = {cls: used.union(*(uses[each] for each in used)) for cls, used in uses.items()}
            if more == uses:
                return any(cls in used for cls, used in uses.items())
            uses = more


def plan_of(target: Any) -> Plan:
    """The plan of a type. Raises `LocalError` for a type that bodies cannot be decoded to, with the field."""
    planner = _Planner()
    try:
        return Plan(planner.node(target, _name(target)), planner.fields)
    except RecursionError as error:
        raise LocalError(f"{_name(target)} contains itself, which only a class can") from error


def kinds_of(node: Node) -> tuple[str, ...]:
    """The kinds of JSON values that a type is decoded from."""
    match node:
        case Leaf(cls):
            return _KINDS[cls]
        case Member(_, values):
            return tuple(dict.fromkeys(TEXT if isinstance(each, str) else WHOLE for each in values))
        case Items():
            return (ARRAY,)
        case Entries() | Object():
            return (OBJECT,)
        case OneOf(members):
            return tuple(kind for each in members for kind in kinds_of(each))
        case Anything():
            return (TEXT, WHOLE, NUMBER, TRUTH, NULL, ARRAY, OBJECT)


class _Planner:
    def __init__(self) -> None:
        self.fields: dict[type, tuple[Field, ...]] = {}

    def node(self, hint: Any, path: str) -> Node:
        hint = unwrapped(hint)
        origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
        if hint is Any or hint is object:
            return Anything()
        if hint is None:
            return Leaf(types.NoneType)
        if origin is typing.Union or origin is types.UnionType:
            return self._union(inner, hint, path)
        if origin is Literal:
            return _literal(inner, hint, path)
        if not isinstance(origin, type):
            raise _unsupported(hint, path)
        if hint in _KINDS:
            return Leaf(hint)
        if issubclass(origin, enum.Enum):
            return _member(origin, path)
        if is_named_tuple(origin) or is_typed_dict(origin) or dataclasses.is_dataclass(origin):
            return self._object(origin, hint, path)
        if origin in (list, Sequence, MutableSequence):
            return Items(self.node(inner[0] if inner else Any, f"{path}[]"), is_tuple=False)
        if origin is tuple and (not inner or inner[1:] == (...,)):
            return Items(self.node(inner[0] if inner else Any, f"{path}[]"), is_tuple=True)
        if origin in (dict, Mapping, MutableMapping) and (not inner or inner[0] in (str, Any)):
            return Entries(self.node(inner[1] if inner else Any, f"{path}[]"))
        raise _unsupported(hint, path)

    def _union(self, inner: tuple[Any, ...], hint: Any, path: str) -> Node:
        members = tuple(self.node(each, path) for each in inner)
        if Anything() in members:
            return Anything()
        flat = [each for member in members for each in (member.members if isinstance(member, OneOf) else (member,))]
        taken: dict[str, Node] = {}
        for member in flat:
            for kind in kinds_of(member):
                if kind in taken and taken[kind] != member and {taken[kind], member} != _BOTH_NUMBERS:
                    raise LocalError(
                        f"{path} is annotated {_name(hint)}, and two of these types are {kind} in JSON, which does not "
                        "tell them apart: leave one"
                    )
                taken[kind] = member
        return OneOf(tuple(sorted(dict.fromkeys(flat), key=lambda each: each != Leaf(float))))

    def _object(self, cls: type, hint: Any, path: str) -> Object:
        if hint is not cls:
            raise _unsupported(hint, path)  # a generic class with arguments
        if cls not in self.fields:
            self.fields[cls] = ()  # it can contain itself
            fields = annotations_of(cls)
            require_constructor(cls, fields)
            self.fields[cls] = tuple(
                Field(name, self.node(each, f"{path}.{name}"), is_required)
                for name, (each, is_required) in fields.items()
            )
        return Object(cls)


def _literal(values: tuple[Any, ...], hint: Any, path: str) -> Node:
    plain = tuple(each for each in values if each is not None)
    if not all(type(each) is str or (type(each) is int and each in _INT64) for each in plain):
        raise _unsupported(hint, path)
    members: list[Node] = [Leaf(types.NoneType)] if len(plain) < len(values) else []
    if plain:
        members.insert(0, Member(None, plain))
    return members[0] if len(members) == 1 else OneOf(tuple(members))


def _member(cls: type[enum.Enum], path: str) -> Member:
    values = tuple(each.value for each in cls)
    if (
        issubclass(cls, enum.Flag)
        or not values
        or not all(type(each) is str or (type(each) is int and each in _INT64) for each in values)
    ):
        raise _unsupported(cls, path)
    return Member(cls, values)


def _inside(node: Node) -> tuple[Node, ...]:
    match node:
        case Items(item, _):
            return (item,)
        case Entries(value):
            return (value,)
        case OneOf(members):
            return members
        case _:
            return ()


def _classes_in(nodes: list[Node]) -> set[type]:
    found: set[type] = set()
    left = nodes
    while left:
        node = left.pop()
        left += _inside(node)
        if isinstance(node, Object):
            found.add(node.type)
    return found


def _name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _unsupported(hint: Any, path: str) -> LocalError:
    return LocalError(f"{path} is annotated {_name(hint)}, to which no JSON body is decoded; possible are {_SUPPORTED}")
