"""Functions of arrays and maps. Elements are compared as `=` does, and NULL is equal to NULL.

A NaN is equal to none, and a map has one of them as a key. Which objects of Python they are must not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rmqio.sql import types
from rmqio.sql.functions.registry import define
from rmqio.sql.rows import once, with_distinct_nans
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure, in_order

Array = list[Any]
Map = dict[Any, Any]


def key(value: Any) -> Any:
    """Returns what stands for a value in a set: arrays and maps are not hashable."""
    if isinstance(value, _NESTED):
        return _hashable(with_distinct_nans(value))
    return value if value == value else object()  # a NaN is equal to none, as in Flink


_NESTED = (list, dict, tuple)


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return ("array", *map(_hashable, value))
    if isinstance(value, dict):
        return ("map", frozenset((_hashable(k), _hashable(v)) for k, v in value.items()))
    return ("row", *map(_hashable, value)) if isinstance(value, tuple) else value


def element(array: Array) -> Any:
    """Returns the only element; None: there is none. Raises `ValueFailure` if there are more."""
    if len(array) > 1:
        raise ValueFailure(f"ELEMENT takes an array of one element, but this one has {len(array)}")
    return array[0] if array else None


def contains(array: Array | None, value: Any) -> bool | None:
    """Returns whether the value, which may be NULL, is in the array."""
    return None if array is None else with_distinct_nans(value) in array  # `in` finds a NaN by its identity


def distinct(items: Iterable[Any]) -> Array:
    """Returns the elements without those that came before."""
    found: dict[Any, Any] = {}
    for each in items:
        found.setdefault(key(each), each)
    return list(found.values())


def join(array: Sequence[str | None], separator: str, null: str | None = None) -> str:
    """Returns the elements with the separator between them; NULL is left out, or replaced."""
    replaced = (null if each is None else each for each in array)
    return separator.join(each for each in replaced if each is not None)


def greatest(array: Array) -> Any:
    """Returns the greatest element that is not NULL; None: there is none."""
    return max((each for each in array if each is not None), default=None, key=in_order)


def least(array: Array) -> Any:
    """Returns the least element that is not NULL; None: there is none."""
    return min((each for each in array if each is not None), default=None, key=in_order)


def position(array: Array, value: Any) -> int:
    """Returns where the value first stands, counted from 1; 0: nowhere."""
    value = with_distinct_nans(value)
    return array.index(value) + 1 if value in array else 0


def remove(array: Array | None, value: Any) -> Array | None:
    """Returns the elements that are not the value, which may be NULL."""
    if array is None:
        return None
    value = with_distinct_nans(value)
    return [each for each in array if each != value]


def section(array: Array, start: int, end: int | None = None) -> Array:
    """Returns the elements from a position to another one, both included; 0 is 1, negative: from the end."""
    length = len(array)
    first = max(1, start if start >= 0 else length + start + 1)
    last = length if end is None else (end or 1) if end >= 0 else length + end + 1
    return array[first - 1 : max(0, last)]


def sort(array: Array, is_ascending: bool = True, nulls_first: bool | None = None) -> Array:
    """Returns the elements in order; NULLs come first if it is ascending and nothing else is said."""
    nulls = [None] * array.count(None)
    found = sorted((each for each in array if each is not None), key=in_order, reverse=not is_ascending)
    return nulls + found if (is_ascending if nulls_first is None else nulls_first) else found + nulls


def union(left: Array, right: Array) -> Array:
    """Returns the elements of both, each once."""
    return distinct([*left, *right])


def concat(*arrays: Array) -> Array:
    """Returns the elements of all of them."""
    return [each for array in arrays for each in array]


def append(array: Array | None, value: Any) -> Array | None:
    """Returns the array with one more element, which may be NULL, at its end."""
    return None if array is None else [*array, value]


def prepend(array: Array | None, value: Any) -> Array | None:
    """Returns the array with one more element, which may be NULL, at its start."""
    return None if array is None else [value, *array]


def difference(left: Array, right: Array) -> Array:
    """Returns the elements of the first that the second lacks, each once."""
    others = set(map(key, right))
    return [each for each in distinct(left) if key(each) not in others]


def intersection(left: Array, right: Array) -> Array:
    """Returns the elements that are in both, each once."""
    others = set(map(key, right))
    return [each for each in distinct(left) if key(each) in others]


def map_of_arrays(keys: Array, found: Array) -> Map:
    """Returns the map of keys and values. Raises `ValueFailure` if there are not as many of both."""
    if len(keys) != len(found):
        raise ValueFailure(f"MAP_FROM_ARRAYS has {len(keys)} keys and {len(found)} values")
    return dict(zip(map(once, keys), found, strict=True))


def map_union(*maps: Map) -> Map:
    """Returns the entries of all of them; of equal keys, the last one."""
    found: Map = {}
    for each in maps:
        found |= {once(k): value for k, value in each.items()}
    return found


# ---- types ----------------------------------------------------------------------------------------------------------


def _element_of(given: Sequence[SqlType]) -> SqlType:
    return given[0].elements[0]


def _first(given: Sequence[SqlType]) -> SqlType:
    return given[0]


def _with_elements(given: Sequence[SqlType]) -> list[SqlType] | None:
    """An array, and values that are converted to the common type of both."""
    found = types.common_type([given[0].elements[0], *given[1:]])
    if found is None:
        return None
    return [types.array_of(found, given[0].is_nullable), *(found.nullable(each.is_nullable) for each in given[1:])]


def _alike(given: Sequence[SqlType]) -> list[SqlType] | None:
    """Arrays or maps of one type."""
    found = types.common_type(given)
    return None if found is None else [found.nullable(each.is_nullable) for each in given]


def _with_text(given: Sequence[SqlType]) -> list[SqlType] | None:
    return list(given) if given[0].elements[0].kind in ("VARCHAR", "NULL") else None


def _with_keys(given: Sequence[SqlType]) -> list[SqlType] | None:
    return list(given) if types.is_key(given[0].elements[0]) else None


def _ordered(given: Sequence[SqlType]) -> list[SqlType] | None:
    return list(given) if given[0].elements[0].kind in (*types.ORDERED, "NULL") else None


def _array_of(index: int) -> Callable[[Sequence[SqlType]], SqlType]:
    return lambda given: types.array_of(given[0].elements[index])


def _entries(given: Sequence[SqlType]) -> SqlType:
    return types.array_of(SqlType("ROW", False, elements=given[0].elements, names=("key", "value")))


def _map_type(given: Sequence[SqlType]) -> SqlType:
    return SqlType("MAP", elements=(given[0].elements[0], given[1].elements[0]))


def _truth_of(given: Sequence[SqlType]) -> SqlType:
    return types.BOOLEAN.nullable(given[0].is_nullable)


define("CARDINALITY", "a -> i | m -> i", inline="len({0})")
define("ELEMENT", "a", element, returns=_element_of, can_be_null=True)
define("ARRAY_CONTAINS", "a any", contains, is_strict=False, takes=_with_elements, returns=_truth_of)
define("ARRAY_DISTINCT", "a", distinct, returns=_first)
define("ARRAY_JOIN", "a s [s] -> s", join, takes=_with_text)
define("ARRAY_MAX", "a", greatest, takes=_ordered, returns=_element_of, can_be_null=True)
define("ARRAY_MIN", "a", least, takes=_ordered, returns=_element_of, can_be_null=True)
define("ARRAY_POSITION", "a any -> i", position, takes=_with_elements)
define("ARRAY_REMOVE", "a any", remove, is_strict=False, takes=_with_elements, returns=_first)
define("ARRAY_REVERSE", "a", inline="{0}[::-1]", returns=_first)
define("ARRAY_SLICE", "a i [i]", section, returns=_first)
define("ARRAY_SORT", "a [b] [b]", sort, takes=_ordered, returns=_first)
define("ARRAY_UNION", "a a", union, takes=_alike, returns=_first)
define("ARRAY_CONCAT", "a ...", concat, takes=_alike, returns=_first)
define("ARRAY_APPEND", "a any", append, is_strict=False, takes=_with_elements, returns=_first)
define("ARRAY_PREPEND", "a any", prepend, is_strict=False, takes=_with_elements, returns=_first)
define("ARRAY_EXCEPT", "a a", difference, takes=_alike, returns=_first)
define("ARRAY_INTERSECT", "a a", intersection, takes=_alike, returns=_first)
define("MAP_KEYS", "m", inline="list({0})", returns=_array_of(0))
define("MAP_VALUES", "m", inline="list({0}.values())", returns=_array_of(1))
define("MAP_ENTRIES", "m", inline="list({0}.items())", returns=_entries)
define("MAP_FROM_ARRAYS", "a a", map_of_arrays, takes=_with_keys, returns=_map_type)
define("MAP_UNION", "m ...", map_union, takes=_alike, returns=_first)
