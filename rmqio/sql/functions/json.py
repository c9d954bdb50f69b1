"""Functions of JSON, which is text in SQL."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NoReturn

from rmqio.sql import types, values
from rmqio.sql.functions.registry import define
from rmqio.sql.types import SqlType
from rmqio.sql.values import ValueFailure, shown

# Paths of SQL/JSON: `$.a.b[0]`, `$['a']`, `$[*]`, after `lax` or `strict`, which find the same.

_MODE: Final = re.compile(r"\s*(?:(?:lax|strict)\s+)?", re.IGNORECASE)
_STEP: Final = re.compile(
    r"\.(?P<star>\*)|\.?\[\s*(?P<index>-?\d{1,9})\s*\]|\.?\[\s*(?P<all>\*)\s*\]"
    r"|\.?\[\s*'(?P<single>(?:[^'\\]|\\.)*)'\s*\]|\.?\[\s*\"(?P<double>(?:[^\"\\]|\\.)*)\"\s*\]"
    r"|\.(?P<name>[^\s.\[\]()*'\"]+)",
    re.DOTALL,
)

ALL: Final = None
"""The step that takes every element of an array, or every value of an object."""
MISSING: Final = object()
"""The result where nothing is found; JSON's null is None."""


class NotJson(ValueError):
    """Text that is not JSON."""


@lru_cache(maxsize=1000)
def path_steps(path: str) -> tuple[str | int | None, ...]:
    """Returns names of members, positions of elements, and `ALL`. Raises `ValueFailure` for what is not supported."""
    mode = _MODE.match(path)
    rest = path[mode.end() if mode else 0 :].strip()
    rest = rest[1:] if rest.startswith("$") else f".{rest}"
    found: list[str | int | None] = []
    start = 0
    while start < len(rest):
        step = _STEP.match(rest, start)
        if step is None:
            raise ValueFailure(f"{shown(path)} is not a JSON path like $.a.b[0], or not a supported one")
        start = step.end()
        if step["star"] or step["all"]:
            found.append(ALL)
        elif step["index"]:
            found.append(int(step["index"]))
        else:
            quoted = step["single"] if step["single"] is not None else step["double"]
            found.append(step["name"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
    return tuple(found)


def lookup(document: Any, path: tuple[str | int | None, ...]) -> Any:
    """Returns what stands at the path, or `MISSING`; a path with `ALL` gives a list, also at no such position."""
    for position, step in enumerate(path):
        if step is ALL:
            return _all(document, path[position + 1 :])
        if isinstance(step, str):
            if not isinstance(document, dict) or step not in document:
                return MISSING
            document = document[step]
        else:
            if not isinstance(document, list):
                return MISSING
            if not -len(document) <= step < len(document):
                return [] if ALL in path[position:] else MISSING
            document = document[step]
    return document


def _all(document: Any, path: tuple[str | int | None, ...]) -> list[Any]:
    items = list(document.values()) if isinstance(document, dict) else document if isinstance(document, list) else []
    found = [each for each in (lookup(each, path) for each in items) if each is not MISSING]
    return [each for part in found for each in part] if ALL in path else found


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


_AFTER_WORD: Final = re.compile(r"[\w$]")
_AFTER_NUMBER: Final = re.compile(r"[^ \t\r\n]")
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse)


@lru_cache(maxsize=8)
def parsed(text: str) -> Any:
    """Returns the document; numbers with a fraction are exact. Text after it is left out. Raises `NotJson`.

    As in Flink, a space must stand before text after a number, and no letter or digit after `true`, `false` and `null`.
    """
    text = text.lstrip(" \t\r\n")
    try:
        document, end = _DECODER.raw_decode(text)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise NotJson(str(error)) from None
    if not isinstance(document, (str, dict, list)):
        follows = _AFTER_WORD if document is None or isinstance(document, bool) else _AFTER_NUMBER
        if follows.match(text, end):
            raise NotJson(f"{shown(text)} goes on after {shown(text[:end])}")
    return without_halves(document) if _HALF.search(text) else document


def without_halves(value: Any) -> Any:
    """Returns a value of JSON; halves of surrogate pairs, which are not UTF-8, are question marks, as in Flink."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [without_halves(each) for each in value]
    if isinstance(value, dict):
        return {without_halves(key): without_halves(each) for key, each in value.items()}
    return value


# The tests IS JSON VALUE, SCALAR, ARRAY and OBJECT of text.


def _test(is_kind: Callable[[object], bool]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            return is_kind(parsed(text))
        except NotJson:
            return False

    return test


define("IS JSON VALUE", "s -> b", _test(lambda _: True))
define("IS JSON SCALAR", "s -> b", _test(lambda document: not isinstance(document, (dict, list))))
define("IS JSON ARRAY", "s -> b", _test(lambda document: isinstance(document, list)))
define("IS JSON OBJECT", "s -> b", _test(lambda document: isinstance(document, dict)))


Writer = Callable[[Any], str]
_quote: Final = json.JSONEncoder(ensure_ascii=False).encode

# ---- reading --------------------------------------------------------------------------------------------------------


_FAILED: Final = object()
"""What `_found` returns for what is an error."""


def _found(text: str, path: str) -> Any:
    """What stands at the path, and is not null; `MISSING`: nothing does; `_FAILED`: that is an error, as in Flink.

    A path is strict unless it begins with `lax`: what is missing, or no JSON, is an error then. A document that is null
    is one in any case.
    """
    steps = path_steps(path)
    try:
        document = parsed(text)
    except NotJson:
        return MISSING if _is_lax(path) else _FAILED
    if document is None:
        return _FAILED
    found = lookup(document, steps)
    if found is not None and found is not MISSING:
        return found
    if not _is_lax(path):
        return _FAILED
    return [] if ALL in steps else MISSING


def value_at(text: str, path: str) -> str | None:
    """Returns the text of the scalar at a path; None: there is none, or it is not JSON."""
    found = _found(text, path)
    if found is MISSING or found is _FAILED or isinstance(found, (dict, list)):
        return None
    return found if isinstance(found, str) else written(found)


def query(text: str, path: str) -> str | None:
    """Returns the object or array at a path as JSON; None: there is none, or it is not JSON."""
    found = _found(text, path)
    return written(found) if isinstance(found, (dict, list)) else None


def exists(text: str, path: str) -> bool:
    """Returns whether there is something else than null at a path."""
    found = _found(text, path)
    return found is not MISSING and found is not _FAILED


def _is_lax(path: str) -> bool:
    return path.split(maxsplit=1)[:1] in (["lax"], ["LAX"])


def state(text: str, path: str) -> int:
    """Returns 0 if there is a scalar at the path, 1 if there is nothing, and 2 if that is an error, as in Flink.

    With a strict path, what is no scalar is an error, too.
    """
    found = _found(text, path)
    if isinstance(found, (dict, list)):
        return 1 if _is_lax(path) else 2
    return 1 if found is MISSING else 2 if found is _FAILED else 0


def value_failed(text: str, path: str, event: str) -> str:
    """Raises `ValueFailure`: ERROR ON EMPTY or ON ERROR."""
    del text
    raise ValueFailure(f"JSON_VALUE finds {'nothing' if event == 'EMPTY' else 'no value of its type'} at {path}")


_INSTEAD: Final = {"NULL": None, "EMPTY ARRAY": "[]", "EMPTY OBJECT": "{}"}


def query_with(text: str, path: str, wrapper: str, on_empty: str, on_error: str) -> str | None:
    """Returns what `query` does, in an array if the wrapper says so; what else there is if nothing is found."""
    found, is_error = _wrapped(text, path, wrapper)
    if found is not None:
        return written(found)
    return _INSTEAD[_event(path, is_error, on_empty, on_error)]


def query_array(text: str, path: str, wrapper: str, on_empty: str, on_error: str) -> list[str | None] | None:
    """Returns the array that `query_with` finds as texts: of scalars what `value_at` gives, JSON of the rest."""
    found, is_error = _wrapped(text, path, wrapper)
    if isinstance(found, list):
        return [each if each is None or isinstance(each, str) else written(each) for each in found]
    event = _event(path, is_error or found is not None, on_empty, on_error)
    return [] if event == "EMPTY ARRAY" else None


def _wrapped(text: str, path: str, wrapper: str) -> tuple[dict[str, Any] | list[Any] | None, bool]:
    """The object or array at a path, in an array if the wrapper says so; None, and whether that is an error."""
    found = _found(text, path)
    if found is MISSING or found is _FAILED:
        return None, found is _FAILED
    if wrapper and not (wrapper == "CONDITIONAL" and isinstance(found, list)):
        found = [found]
    return (found, False) if isinstance(found, (dict, list)) else (None, not _is_lax(path))


def _event(path: str, is_error: bool, on_empty: str, on_error: str) -> str:
    event = on_error if is_error else on_empty
    if event == "ERROR":
        raise ValueFailure(f"JSON_QUERY finds no object or array at {path}")
    return event


def exists_or(text: str, path: str, on_error: str) -> bool | None:
    """Returns what `exists` does; what else there is if that is an error."""
    found = _found(text, path)
    if found is not _FAILED:
        return found is not MISSING
    if on_error == "ERROR":
        raise ValueFailure(f"JSON_EXISTS finds nothing at {path}")
    return {"TRUE": True, "FALSE": False}.get(on_error)


def written(value: Any) -> str:
    """Returns a parsed document as JSON without spaces."""
    try:
        return _written(value)
    except RecursionError:
        raise ValueFailure("the JSON is nested too deeply") from None


def _written(value: Any) -> str:
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, dict):
        return object_of((key, _written(each)) for key, each in value.items())
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def object_of(members: Iterable[tuple[str, str]]) -> str:
    """Returns an object of JSON: of a key that is there twice the last value, in Java's order of keys, as in Flink."""
    found = dict(members)
    return "{" + ",".join(f"{_quote(key)}:{found[key]}" for key in sorted(found, key=_order)) + "}"


def _order(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


# ---- quoting --------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """Returns the text as a string of JSON in ASCII, with `/` escaped too."""
    return json.dumps(text).replace("/", "\\/")


def unquoted(text: str) -> str:
    """Returns the text that a string of JSON stands for; other text stays as it is."""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    try:
        found = json.loads(text, strict=False)
    except ValueError:
        return text
    return without_halves(found) if isinstance(found, str) else text


# ---- writing: the first argument is the type of the value, and those of the values ----------------------------------


def json_string(kind: SqlType, value: Any) -> str:
    """Returns a value as JSON."""
    return writer(kind)(value)


def json_array(kinds: tuple[SqlType, ...], raw: frozenset[int], *items: Any) -> str:
    """Returns the values that are not NULL as an array of JSON; those at the raw positions are JSON already."""
    found = zip(kinds, items, strict=True)
    return "[" + ",".join(
        each if i in raw else writer(kind)(each) for i, (kind, each) in enumerate(found) if each is not None
    ) + "]"  # fmt: skip


def json_object(kinds: tuple[SqlType, ...], raw: frozenset[int], *items: Any) -> str:
    """Returns keys and values, by turns, as an object of JSON; the values at the raw positions are JSON already."""
    members = []
    for position in range(0, len(items), 2):
        key, each = items[position : position + 2]
        if key is None:
            raise ValueFailure("a key of JSON_OBJECT is NULL")
        is_raw = position + 1 in raw and each is not None
        members.append((key, each if is_raw else _or_null(writer(kinds[position + 1]))(each)))
    return object_of(members)


def json_array_with_nulls(kinds: tuple[SqlType, ...], raw: frozenset[int], *items: Any) -> str:
    """Returns the values as an array of JSON."""
    pairs = enumerate(zip(kinds, items, strict=True))
    return f"[{','.join(each if i in raw else _or_null(writer(kind))(each) for i, (kind, each) in pairs)}]"


def json_object_without_nulls(kinds: tuple[SqlType, ...], raw: frozenset[int], *items: Any) -> str:
    """Returns keys and values as an object of JSON, without the values that are NULL."""
    kept = [i for at in range(0, len(items), 2) if items[at + 1] is not None for i in (at, at + 1)]
    rest = frozenset(new for new, old in enumerate(kept) if old in raw)
    return json_object(tuple(kinds[i] for i in kept), rest, *(items[i] for i in kept))


def _required(key: Any) -> Any:
    if key is None:
        raise ValueFailure("a key of the MAP is NULL, which JSON does not have")
    return key


def _or_null(write: Writer) -> Writer:
    return lambda value: "null" if value is None else write(value)


# ---- parts of aggregates ---------------------------------------------------------------------------------------------


def json_item(kind: SqlType | None, value: Any) -> str | None:
    """Returns a value as an element of JSON_ARRAYAGG; None: it is left out. Without a type, it is JSON already."""
    return value if value is None or kind is None else writer(kind)(value)


def json_item_or_null(kind: SqlType | None, value: Any) -> str:
    """Returns a value as an element of JSON_ARRAYAGG(... NULL ON NULL)."""
    return "null" if value is None else value if kind is None else writer(kind)(value)


def json_member(kind: SqlType | None, key: str | None, value: Any) -> tuple[str, str] | None:
    """Returns key and value of JSON_OBJECTAGG(... ABSENT ON NULL); None: they are left out."""
    return None if value is None else json_member_or_null(kind, key, value)


def json_member_or_null(kind: SqlType | None, key: str | None, value: Any) -> tuple[str, str]:
    """Returns key and value of JSON_OBJECTAGG."""
    if key is None:
        raise ValueFailure("a key of JSON_OBJECTAGG is NULL")
    return key, json_item_or_null(kind, value)


@lru_cache(maxsize=1000)
def writer(kind: SqlType) -> Writer:
    """Returns the function that writes a value of the type as JSON."""
    match kind.kind:
        case "BOOLEAN":
            return lambda value: "true" if value else "false"
        case "FLOAT" | "DOUBLE":
            return _number
        case "VARBINARY":
            return lambda value: f'"{base64.b64encode(value).decode("ascii")}"'
        case "ARRAY" | "MULTISET":
            item = _or_null(writer(kind.elements[0]))
            return lambda value: f"[{','.join(map(item, value))}]"
        case "MAP":
            key, item = _text_of(kind.elements[0]), _or_null(writer(kind.elements[1]))
            return lambda value: object_of((key(_required(k)), item(v)) for k, v in value.items())
        case "ROW":
            parts = [_or_null(writer(each)) for each in kind.elements]
            return lambda value: object_of(
                (name, part(each)) for name, part, each in zip(kind.names, parts, value, strict=True)
            )
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            end = "Z" if kind.kind == "TIMESTAMP_LTZ" else ""
            return lambda value: f'"{_iso(value)}{end}"'
    if kind.kind in types.BITS or kind.kind == "DECIMAL":
        return str
    text = _text_of(kind)
    return lambda value: _quote(text(value))


def _text_of(kind: SqlType) -> Callable[[Any], str]:
    from rmqio.sql.casts import text_of  # the compiler imports the functions

    return text_of(kind)


def _number(number: float) -> str:
    text = values.text_of_double(number + 0.0)  # -0.0 is 0.0
    return str(Decimal(text)) if text[-1].isdecimal() else f'"{text}"'


def _iso(micros: int) -> str:
    return re.sub(r"\.?0+$", "", values.text_of_timestamp(micros, 6, "T")) if micros % 1_000_000 else (
        values.text_of_timestamp(micros, 0, "T")
    )  # fmt: skip


define("JSON_VALUE, JSON TEXT", "s s -> s", value_at, can_be_null=True, constants={1: path_steps})
define("JSON_QUERY", "s s -> s", query, can_be_null=True, constants={1: path_steps})
define("JSON_EXISTS", "s s -> b", exists, constants={1: path_steps})
define("JSON_QUOTE", "s -> s", quoted)
define("JSON_UNQUOTE", "s -> s", unquoted)
define("JSON_STRING", "any any -> s", json_string)
define("JSON_STRING OF JSON", "s -> s", inline="{0}")
define("JSON_ARRAY", "any any ... -> s", json_array, is_strict=False)
define("JSON_OBJECT", "any any ... -> s", json_object, is_strict=False)
# With what stands behind the arguments: `sql.analysis.calls`.
define("JSON STATE", "s s -> i", state)
define("JSON VALUE FAILED", "s s s -> s", value_failed)
define("JSON QUERY", "s s s s s -> s", query_with, can_be_null=True, constants={1: path_steps})
define("JSON QUERY ARRAY", "s s s s s -> as", query_array, can_be_null=True, constants={1: path_steps})
define("JSON EXISTS", "s s s -> b", exists_or, can_be_null=True, constants={1: path_steps})
define("JSON ARRAY WITH NULLS", "any any ... -> s", json_array_with_nulls, is_strict=False)
define("JSON OBJECT WITHOUT NULLS", "any any ... -> s", json_object_without_nulls, is_strict=False)
# Aggregates use the functions from here on: see `sql.analysis.aggregates`.
define("JSON ITEM", "any any -> s", json_item, is_strict=False)
define("JSON ITEM OR NULL", "any any -> s", json_item_or_null, is_strict=False)
define("JSON MEMBER", "any any any -> s", json_member, is_strict=False)
define("JSON MEMBER OR NULL", "any any any -> s", json_member_or_null, is_strict=False)
