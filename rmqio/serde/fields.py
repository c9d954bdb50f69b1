"""Keys and tags of messages from the fields of an element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmqio.errors import LocalError
from rmqio.serde.base import key_text, unencodable


def names_of_keys(given: Sequence[str]) -> tuple[str, ...]:
    """Raises `LocalError` for one name, which as a sequence would be its letters."""
    if isinstance(given, str):
        raise LocalError(f"key_fields is {given!r}; it must be several names: ({given!r},)")
    return tuple(given)


def keys_of(element: object, fields: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """The keys of a message. Raises `SerdeError`: a field is missing, or no key can be made of it."""
    keys = []
    for name in names:
        if fields.get(name) is None:
            raise unencodable(element, f"field {name!r}, which is to be a key, is missing")
        text = key_text(element, name, fields[name])
        if text.split() != [text]:
            raise unencodable(element, f"field {name!r} is empty or holds white space, which separates keys")
        keys.append(text)
    return keys


def tag_of(element: object, fields: Mapping[str, Any], name: str | None) -> str | None:
    """The tag of a message; None where the field is missing. Raises `SerdeError`: no tag can be made of it."""
    if name is None or fields.get(name) is None:
        return None
    # An empty tag is no tag: the broker drops it.
    return key_text(element, name, fields[name]) or None
