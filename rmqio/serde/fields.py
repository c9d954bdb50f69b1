"""Keys and tags of messages, taken from the fields of an element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmqio.errors import LocalError
from rmqio.serde.base import key_text, unencodable


def names_of_keys(given: Sequence[str]) -> tuple[str, ...]:
    """The names as a tuple. Raises `LocalError` for a single text, whose letters would be the names."""
    if isinstance(given, str):
        raise LocalError(f"key_fields is {given!r}; it must be several names: ({given!r},)")
    return tuple(given)


def keys_of(element: object, fields: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """The keys of a message. Raises `SerdeError` if a field is missing, or cannot become a key."""
    keys = []
    for name in names:
        if fields.get(name) is None:
            raise unencodable(element, f"field {name!r}, which is a key, is missing")
        text = key_text(element, name, fields[name])
        if text.split() != [text]:
            raise unencodable(element, f"field {name!r} is empty or contains white space, which separates keys")
        keys.append(text)
    return keys


def tag_of(element: object, fields: Mapping[str, Any], name: str | None) -> str | None:
    """The tag of a message; None if the field is missing. Raises `SerdeError` if the field cannot become a tag."""
    if name is None or fields.get(name) is None:
        return None
    # An empty tag means no tag: the broker drops it.
    return key_text(element, name, fields[name]) or None
