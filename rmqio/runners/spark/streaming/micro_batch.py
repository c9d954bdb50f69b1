"""A planned micro-batch: the values that Spark's checkpoint stores and that the levels receive, as JSON.

The processes that plan, run and monitor a query share these values, so the module imports neither Beam nor Spark.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, NamedTuple, NewType, Self

from rmqio.errors import RmqioError

# Checks decoded JSON field by field: a field that is missing or has the wrong type is an error that names it.
#
# The processes that plan, run and monitor a query all decode such values, so the module imports neither Beam nor
# Spark.

_REQUIRED: Final = object()
_MOST_CHARACTERS: Final = 80
_NAMES: Final[Mapping[type, str]] = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    dict: "an object",
    list: "an array",
    NoneType: "null",
}


class MalformedJson(RmqioError, ValueError):
    """A value that another process or an earlier run has encoded does not have the form that is expected here."""


class Fields:
    """The fields of a JSON object, or the values of an array under the names that they have here."""

    __slots__ = ("_found", "_where")

    def __init__(self, where: str, found: object, names: Sequence[str] | None = None) -> None:
        """Args: `where`: what errors call the object; `names`: if given, any other field is an error."""
        self._where = where
        self._found: dict[str, object] = _checked(where, found, dict)
        unexpected = [] if names is None else [name for name in self._found if name not in names]
        if unexpected:
            raise MalformedJson(f"{where}.{unexpected[0]} is not expected")

    @classmethod
    def decode(cls, where: str, encoded: bytes, names: Sequence[str] | None = None) -> Self:
        """Decodes an object."""
        return cls(where, _parsed(where, encoded), names)

    @classmethod
    def decode_array(cls, where: str, encoded: bytes | str, names: Sequence[str]) -> Self:
        """Decodes an array whose values have these names."""
        found: list[object] = _checked(where, _parsed(where, encoded), list)
        if len(found) > len(names):
            raise MalformedJson(f"{where} has {len(found)} values, of which only {', '.join(names)} are expected")
        return cls(where, dict(zip(names, found, strict=False)))

    def value(self, name: str, *kinds: type, default: object = _REQUIRED) -> Any:
        """Returns the value of a field, which has one of these types. Without a default, the field is required."""
        found = self._found.get(name, default)
        if found is _REQUIRED:
            raise MalformedJson(f"{self._where}.{name} is missing")
        if found is default:
            return default
        return found if type(found) in kinds else _checked(f"{self._where}.{name}", found, *kinds)

    def values(self, *kinds: type) -> dict[str, Any]:
        """Returns the values of all fields, which have one of these types each."""
        for name, found in self._found.items():
            if type(found) not in kinds:
                _checked(f"{self._where}.{name}", found, *kinds)
        return self._found

    def pairs(self) -> dict[str, tuple[int, int]]:
        """Returns the values of all fields, which are two integers each."""
        pairs: dict[str, tuple[int, int]] = {}
        for name, found in self._found.items():
            match found:
                case [first, second] if type(first) is int and type(second) is int:
                    pairs[name] = (first, second)
                case _:
                    raise MalformedJson(f"{self._where}.{name} must be an array of two integers, not {_shown(found)}")
        return pairs

    def nested(self, name: str, names: Sequence[str] | None = None, *, is_optional: bool = False) -> Fields:
        """Returns the fields of a field that is an object itself. If it is optional, it is empty where it is missing.

        If `names` are given, any other field is an error.
        """
        found = self.value(name, dict, default={}) if is_optional else self.value(name, dict)
        return Fields(f"{self._where}.{name}", found, names)

    def all_nested(self, names: Sequence[str] | None = None) -> Iterator[tuple[str, Fields]]:
        """Yields all fields, which are objects themselves, by name."""
        for name in self._found:
            yield name, self.nested(name, names)

    def integers_of_objects(self, name: str, *, is_optional: bool = False) -> dict[str, dict[str, int]]:
        """Returns a field that is an object of objects of integers."""
        found = self.nested(name, is_optional=is_optional)
        return {each: fields.values(int) for each, fields in found.all_nested()}


def _parsed(where: str, encoded: bytes | str) -> object:
    try:
        found: object = json.loads(encoded)
    except ValueError as error:
        raise MalformedJson(f"{where} is not JSON: {error}") from None
    return found


def _checked(where: str, found: object, *kinds: type) -> Any:
    if type(found) not in kinds:  # not `isinstance`: true is not an integer
        expected = " or ".join(_NAMES[kind] for kind in kinds)
        raise MalformedJson(f"{where} must be {expected}, not {_shown(found)}")
    return found


def _shown(found: object) -> str:
    return f"{found!r:.{_MOST_CHARACTERS}}"


# The runner's own channels of rows. The channels of PCollections count up from 0.

TICK: Final = -2
"""How far the sources (for level 1) or the channels (for later levels) have advanced. Goes to every bucket."""
PARTS: Final = -3
"""A read's findings about its parts (`Learned`). The key is the source's number."""
REPORT: Final = -4
"""A pickled `LevelReport` for the driver. Passes through all levels."""
BATCH: Final = -5
"""The micro-batch (`BatchHeader`): its run, its number, and what an earlier run cut. Goes to each task of level 0."""
FIRST_SOURCE: Final = -100
"""The channel of the first source's elements. Each further source has the next lower number."""


Position = NewType("Position", object)
"""A planner's position, a JSON value that says how far a source is read. Only the planner looks into it."""
Positions = Mapping[str, Position | None]
"""By source number; None: nothing is planned yet."""
Parts = Mapping[str, Mapping[str, int]]
"""By source number and part: how far the part was read."""


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """An offset in Spark's checkpoint. It says everything that the micro-batch which ends there reads."""

    number: int = 0
    """The number of the micro-batch; 0 for the offset before the first one."""
    to: Positions = dataclasses.field(default_factory=dict)
    begin: Positions | None = None
    """The positions where the micro-batch begins; None for the offset before the first one."""
    clock: float = 0.0
    """Processing time in seconds."""
    run: str = ""
    """The run of the query that planned the micro-batch."""
    is_drained: bool = False
    """Whether all sources end at the position to which they have been read."""

    @classmethod
    def from_json(cls, found: object) -> Self:
        fields = Fields("PlannedOffset", found)
        return cls(
            number=fields.value("number", int),
            to=_positions(fields, "to"),
            begin=None if fields.value("from", dict, NoneType, default=None) is None else _positions(fields, "from"),
            clock=fields.value("clock", int, float, default=0.0),
            run=fields.value("run", str, default=""),
            is_drained=fields.value("drained", bool, default=False),
        )

    def to_json(self) -> dict[str, object]:
        """Returns the offset as JSON.

        The offset before the first micro-batch has only the keys that offsets had in the first version of checkpoints.
        """
        if self.begin is None:
            return {"number": self.number, "to": self.to}
        found = {"number": self.number, "clock": self.clock, "run": self.run}
        return {**found, "from": self.begin, "to": self.to, "drained": self.is_drained}


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The part of one source in a micro-batch."""

    name: str
    parts: Mapping[str, int | None]
    """The parts whose watermarks count, as `Planner.partitions` returns them."""
    silent: Mapping[str, tuple[int, int]]
    """The parts that are read to their end, as `Planner.silent` returns them."""
    has_ended: bool
    """Whether nothing comes from the source after the micro-batch, ever."""
    is_done: bool
    """Whether nothing comes from the source after the micro-batch in this run."""
    rows: int
    """The number of planned records."""
    lag: Mapping[str, int]
    """The number of records that are left after the micro-batch, by topic."""

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(
            name=fields.value("name", str),
            parts=fields.nested("parts").values(int, NoneType),
            silent=fields.nested("silent").pairs(),
            has_ended=fields.value("has_ended", bool),
            is_done=fields.value("is_done", bool),
            rows=fields.value("rows", int),
            lag=fields.nested("lag").values(int),
        )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The description of a micro-batch that the planning process sends to the levels and the driver."""

    number: int
    clock: float
    run: str
    to: Positions
    is_drained: bool
    sources: Mapping[str, SourcePlan]
    """By source number."""

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        fields = Fields.decode("MicroBatch", encoded, _names(cls))
        sources = fields.nested("sources").all_nested(_names(SourcePlan))
        return cls(
            number=fields.value("number", int),
            clock=fields.value("clock", int, float),
            run=fields.value("run", str),
            to=_positions(fields, "to"),
            is_drained=fields.value("is_drained", bool),
            sources={number: SourcePlan.from_fields(each) for number, each in sources},
        )

    def encode(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @property
    def rows(self) -> int:
        """The number of planned records, of all sources."""
        return sum(each.rows for each in self.sources.values())

    @property
    def lag(self) -> dict[str, int]:
        """The number of records that are left after the micro-batch, by topic."""
        found: dict[str, int] = {}
        for each in self.sources.values():
            for topic, left in each.lag.items():
                found[topic] = found.get(topic, 0) + left
        return found

    @property
    def is_done(self) -> bool:
        """Whether all sources have been read to the point where this run ends."""
        return all(each.is_done for each in self.sources.values())

    @property
    def has_ended(self) -> bool:
        """Whether nothing comes from any source after the micro-batch, ever."""
        return all(each.has_ended for each in self.sources.values())


class BatchHeader(NamedTuple):
    """The first row of each task of level 0: the micro-batch, and the parts that an earlier run of it cut short."""

    run: str
    number: int
    cuts: Parts

    @classmethod
    def decode(cls, encoded: bytes) -> Self:
        fields = Fields.decode_array("BatchHeader", encoded, cls._fields)
        return cls(fields.value("run", str), fields.value("number", int), fields.integers_of_objects("cuts"))

    def encode(self) -> bytes:
        return json.dumps(self).encode()


class Cuts(NamedTuple):
    """The parts that one micro-batch did not read to their planned end: a broker returned nothing, and others wait."""

    number: int
    """The number of the micro-batch, as the planning counts."""
    parts: Parts

    @classmethod
    def from_json(cls, found: object) -> Self:
        """Returns the cuts from the checkpoint, where they are an object."""
        return cls._from_fields(Fields("Cuts", found))

    def to_json(self) -> dict[str, object]:
        return self._asdict()

    @classmethod
    def read(cls, path: str) -> Cuts | None:
        """Reads the cuts from a file of the driver. Returns None if there is no file."""
        try:
            with open(path) as file:
                return cls._from_fields(Fields.decode_array("Cuts", file.read(), cls._fields))
        except FileNotFoundError:
            return None

    def write(self, path: str) -> None:
        """Writes the cuts to a file of the driver, atomically."""
        with open(f"{path}.part", "w") as file:
            json.dump(self, file)
        os.replace(f"{path}.part", path)

    @classmethod
    def _from_fields(cls, fields: Fields) -> Self:
        return cls(fields.value("number", int), fields.integers_of_objects("parts"))


def _positions(fields: Fields, name: str) -> Positions:
    """Decodes positions. They are encoded as they are."""
    found: Positions = fields.value(name, dict)
    return found


def _names(kind: type[MicroBatch | SourcePlan]) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)]
