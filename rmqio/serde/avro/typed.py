"""Converts fastavro's dicts to the types that the user wants: NamedTuples, dataclasses, rows, enums, durations."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import uuid
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from rmqio.errors import LocalError
from rmqio.serde.avro.nodes import DURATION, Duration, Node
from rmqio.serde.avro.schema import AvroSchema
from rmqio.serde.avro.types import (
    choices,
    fields_of_class,
    is_named_tuple,
    is_record_class,
    item_of,
    required_fields,
    takes,
    type_of_leaf,
    value_of,
)

# Finds the branch of a union for a decoded value, and converts the value.

_UNNAMED: Final[dict[str, type]] = {"array": list, "map": dict}


def of_branches(branches: Sequence[tuple[Node, Convert | None]], *, is_writers: bool) -> Convert:
    """A conversion for a union, from its branches except null, and the conversion of each.

    For named types in a union of the writer, fastavro returns a pair of name and value. If only the reader has the
    union, the value comes alone, and its form selects the branch: the fields of records, the symbols of enums, and the
    size of fixed.

    Args:
      is_writers: whether the writer certainly had the same union.

    The returned function raises ValueError for a map that could be a record.
    """
    kinds = {_kind(node) for node, _ in branches}
    by_name = {node["name"]: convert for node, convert in branches if isinstance(node, dict) and "name" in node}
    by_type: dict[type, Convert | None] = {
        _UNNAMED[kind]: convert for node, convert in branches if (kind := _kind(node)) in _UNNAMED
    }
    by_fields = {
        frozenset(field["name"] for field in node["fields"]): convert
        for node, convert in reversed(branches)
        if _kind(node) == "record"
    }
    by_symbol = {
        symbol: convert
        for node, convert in reversed(branches)
        if _kind(node) == "enum" and "string" not in kinds
        for symbol in node["symbols"]
    }
    by_size = {
        node["size"]: convert for node, convert in reversed(branches) if _kind(node) == "fixed" and "bytes" not in kinds
    }

    def convert(value: Any) -> Any:
        cls = type(value)
        if cls is tuple:
            name, value = value
            found = by_name[name]
        elif cls is dict and not is_writers and (fields := frozenset(value)) in by_fields:
            if dict in by_type:
                raise ValueError
            found = by_fields[fields]
        elif cls is str:
            found = by_symbol.get(value)
        elif cls is bytes:
            found = by_size.get(len(value))
        else:
            found = by_type.get(cls)
        return value if found is None else found(value)

    return convert


def _kind(node: Node) -> str:
    return str(node["type"] if isinstance(node, dict) else node)


Convert = Callable[[Any], Any]


MakeRow = Callable[[dict[str, Any]], Any]
"""Creates a record without a class from its fields in the schema's order, in a dict that nothing else uses."""
OfDefault = Callable[[Any], Convert | None]
_Key = tuple[str, Any]
"""The name of a record, and its class or None."""


class Conversion(NamedTuple):
    """The conversion of a value (None: none), and whether it needs the names of union branches from fastavro."""

    convert: Convert | None
    named: bool


def converter(
    schema: AvroSchema,
    target: type | None,
    make_row: MakeRow | None = None,
    of_default: OfDefault | None = None,
) -> Conversion:
    """The conversion of decoded values to `target`.

    Args:
      schema: the schema of the decoded value, as the reader sees it.
      target: a NamedTuple or dataclass for the record; None: dicts, or the results of `make_row`.
      of_default: applied first to a field that may have its default. None: values were written with this same schema,
        so fields come in its order.

    Raises `LocalError` if the class does not fit the schema.
    """
    hint: Any = Any if target is None else target
    named, converted = False, set[_Key]()
    while True:
        found = _Converters(schema, make_row, of_default, frozenset(converted), named=named)
        convert = found.of(schema.parsed, hint, schema.name)
        if found.needs_names == named and converted >= found.converted:
            return Conversion(convert, named)
        named = found.needs_names or named
        converted |= found.converted


class _Converters:
    """One converter for each type and annotation. That of a named type is created once, because it can contain itself.

    Args:
      converted: the records within themselves that are known to be converted. The others are taken for records that
        stay as they are, until `converted` says more.
      named: a named type that is a branch of a union arrives as a pair of its name and the value.
    """

    def __init__(
        self,
        schema: AvroSchema,
        make_row: MakeRow | None,
        of_default: OfDefault | None,
        converted: frozenset[_Key],
        *,
        named: bool,
    ) -> None:
        self._schema, self._make_row, self._of_default, self._named = schema, make_row, of_default, named
        self.needs_names = named
        """Whether a union has several branches that must be told apart by their names."""
        self.converted = set(converted)
        """The records within themselves that turned out to be converted. With a new one, all must be made again."""
        self._made: dict[_Key, Convert | None] = {}
        self._open: dict[_Key, set[_Key]] = {}
        """The records that are being made, from the outside in, and those that are converted if one of these is."""

    def of(self, node: Node, hint: Any, path: str) -> Convert | None:
        node = self._schema.resolve(node)
        if isinstance(node, list):
            return self._of_union(node, hint, path)
        wanted, _ = choices(hint)
        kind = node["type"] if isinstance(node, dict) else node
        if not isinstance(kind, str):
            return self.of(kind, hint, path)
        if kind in ("record", "error"):
            return self._unnamed(self._of_record(node, class_for(node, wanted, path), path))
        hint = wanted[0] if len(wanted) == 1 else enum_of(wanted) if kind == "enum" else Any
        try:
            if kind == "array":
                return _of_items(self.of(node["items"], item_of(hint), f"{path}[]"), hint)
            if kind == "map":
                return _of_values(self.of(node["values"], value_of(hint), f"{path}[]"))
        except TypeError:
            shown, wants = ("an array", "list[...]") if kind == "array" else ("a map", "dict[str, ...]")
            raise LocalError(f"{path} is annotated {hint}, and is {shown} in the schema: annotate {wants}") from None
        found = leaf_converter(node, hint, path)
        return self._unnamed(found) if kind in ("enum", "fixed") else found

    def _unnamed(self, convert: Convert | None) -> Convert | None:
        """The conversion of a value that is not a branch here, but may have been one in the writer's schema."""
        if not self._named or self._of_default is None:
            return convert
        inner = convert or _same
        return lambda value: inner(value[1]) if type(value) is tuple else inner(value)

    def _of_record(self, node: Node, cls: type | None, path: str) -> Convert | None:
        key = (node["name"], cls)
        if key in self._made:
            return self._made[key]
        if key in self._open:  # it contains itself
            if key in self.converted:
                return lambda value: (self._made[key] or _same)(value)
            self._open[key].update(itertools.dropwhile(lambda each: each != key, self._open))
            return None
        self._open[key] = set()
        hints = {} if cls is None else fields_of_class(cls)
        inside = [
            (field["name"], convert)
            for field in node["fields"]
            if cls is None or field["name"] in hints
            if (convert := self._of_field(field, hints.get(field["name"], Any), f"{path}.{field['name']}"))
        ]
        self._made[key] = self._record(node, cls, hints, inside, path)
        within = self._open.pop(key)
        if self._made[key] is not None:
            self.converted |= within
        return self._made[key]

    def _of_field(self, field: Node, hint: Any, path: str) -> Convert | None:
        convert = self.of(field["type"], hint, path)
        first = self._of_default(field["default"]) if self._of_default is not None and "default" in field else None
        if first is None or convert is None:
            return first or convert
        return lambda value: convert(first(value))

    def _record(
        self, node: Node, cls: type | None, hints: dict[str, Any], inside: list[tuple[str, Convert]], path: str
    ) -> Convert | None:
        known = [field["name"] for field in node["fields"]]
        if cls is not None:
            if missing := required_fields(cls) - set(known):
                raise LocalError(
                    f"{cls.__qualname__} needs {', '.join(sorted(missing))}, which {path} in the schema does not have: "
                    "give them defaults, or add the fields to the schema"
                )
            names = [name for name in hints if name in known]
            make = record_maker(cls, names, is_whole=names == list(hints))
        elif self._make_row is not None:
            return _of_row(known if self._of_default is not None else None, self._make_row, inside)
        else:
            return _in_place(inside) if inside else None
        return _of_fields(names, make, inside)

    def _of_union(self, branches: list[Node], hint: Any, path: str) -> Convert | None:
        _, takes_none = choices(hint)
        others = [self._schema.resolve(branch) for branch in branches if branch != "null"]
        is_open = hint is Any or hint is object
        if len(others) < len(branches) and not takes_none and not is_open:
            raise LocalError(f"{path} is annotated {hint}, and may be null in the schema: make it `| None`")
        inside = [self.of(each, hint_for(each, hint), path) for each in others]
        is_named = [isinstance(each, dict) and "name" in each for each in others]
        if len(others) == 1 and not (self._named and is_named[0]):
            (convert,) = inside
            return None if convert is None else lambda value: None if value is None else convert(value)
        if any(convert for convert, named in zip(inside, is_named, strict=True) if named) and len(others) > 1:
            self.needs_names = True
        if any(convert for convert, each in zip(inside, others, strict=True) if _is(each, "map")) and any(
            _is(each, "record", "error") for each in others
        ):
            self.needs_names = True  # both are dicts
        if not any(inside) and not (self._named and any(is_named)):
            return None
        return of_branches(list(zip(others, inside, strict=True)), is_writers=self._of_default is None)


def _is(node: Node, *kinds: str) -> bool:
    return isinstance(node, dict) and node["type"] in kinds


def class_for(node: Node, wanted: list[Any], path: str) -> type | None:
    """The class for a record, of the types that its annotation permits. Raises `LocalError` if none can hold it."""
    classes = [each for each in wanted if is_record_class(each)]
    if len(classes) > 1:
        short = node["name"].rpartition(".")[2]
        classes = [each for each in classes if each.__name__ == short]
        if not classes:
            raise LocalError(f"{path}: none of the annotated classes is named {short}, as the record is")
    if not classes and not any(takes(each, dict) for each in wanted):
        raise LocalError(f"{path} is annotated {wanted}, and is the record {node['name']} in the schema")
    return classes[0] if classes else None


def enum_of(wanted: list[Any]) -> Any:
    """The only enum among the types that an annotation permits; otherwise `Any`."""
    found = [each for each in wanted if isinstance(each, type) and issubclass(each, enum.Enum)]
    return found[0] if len(found) == 1 else Any


def hint_for(node: Node, hint: Any) -> Any:
    """The part of a union annotation for a branch. Classes for records are selected by their names."""
    kind = node["type"] if isinstance(node, dict) else node
    item = {"array": item_of, "map": value_of}.get(kind)
    wanted, _ = choices(hint)
    if item is None or len(wanted) < 2:
        return hint
    for each in wanted:
        with contextlib.suppress(TypeError):
            if each is not Any and not is_record_class(each):
                item(each)
                return each
    return Any


def _same(value: Any) -> Any:
    return value


def record_maker(cls: type, names: list[str], *, is_whole: bool) -> Callable[[Sequence[Any]], Any]:
    """A function that creates an instance from the values of these fields."""
    if is_named_tuple(cls) and is_whole:
        found: Callable[[Sequence[Any]], Any] = cls._make  # type: ignore[attr-defined]
        return found
    if is_whole and not any(field.kw_only for field in dataclasses.fields(cls)):
        return lambda values: cls(*values)
    return lambda values: cls(**dict(zip(names, values, strict=True)))


def _of_fields(names: list[str], make: Callable[[Sequence[Any]], Any], inside: list[tuple[str, Convert]]) -> Convert:
    if len(names) > 1:
        take: Callable[[Any], Sequence[Any]] = itemgetter(*names)
    else:
        take = lambda value: [value[name] for name in names]  # noqa: E731 - itemgetter of one gives no tuple
    if not inside:
        return lambda value: make(take(value))

    def convert(value: Any) -> Any:
        for name, convert_field in inside:
            value[name] = convert_field(value[name])
        return make(take(value))

    return convert


def _in_place(inside: list[tuple[str, Convert]]) -> Convert:
    def convert(value: Any) -> Any:
        for name, convert_field in inside:
            value[name] = convert_field(value[name])
        return value

    return convert


def _of_row(names: list[str] | None, make_row: MakeRow, inside: list[tuple[str, Convert]]) -> Convert:
    """`names`: the order of the fields, if they do not already have it."""
    if names is not None:
        return _of_fields(names, lambda values: make_row(dict(zip(names, values, strict=True))), inside)
    if not inside:
        return make_row

    def convert(value: Any) -> Any:
        for name, convert_field in inside:
            value[name] = convert_field(value[name])
        return make_row(value)

    return convert


def _of_items(convert: Convert | None, hint: Any) -> Convert | None:
    is_tuple = getattr(hint, "__origin__", hint) is tuple
    if convert is None:
        return tuple if is_tuple else None
    return (lambda value: tuple(map(convert, value))) if is_tuple else (lambda value: list(map(convert, value)))


def _of_values(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: {key: convert(each) for key, each in value.items()}


def leaf_converter(node: Node, hint: Any, path: str) -> Convert | None:
    """The conversion of a value without parts. Raises `LocalError` if the annotation does not fit the schema."""
    leaf = type_of_leaf(node)
    if not takes(hint, leaf):
        raise LocalError(f"{path} is annotated {hint.__name__}, and is {leaf.__name__} by the schema")
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        if not isinstance(node, dict) or node["type"] != "enum":
            raise LocalError(f"{path} is annotated {hint.__qualname__}, and is text by the schema, which may be any")
        if missing := [each for each in node.get("symbols", ()) if each not in hint.__members__]:
            raise LocalError(f"{path}: {hint.__qualname__} lacks the symbols {', '.join(missing)}")
        return hint.__members__.__getitem__
    if leaf is Duration:
        return lambda value: Duration._make(DURATION.unpack(value))
    if leaf is uuid.UUID and isinstance(node, dict) and node["type"] == "fixed":
        return lambda value: uuid.UUID(bytes=value)
    return None
