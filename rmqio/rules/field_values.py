"""Values of fields, for expressions: where a field is in an event, and what it is as text and as a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_LONGEST_NUMBER: Final = 64


def text_of(value: Any) -> str | None:
    """Returns the text of a single value, as JSON writes it without quotes; None: it has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, (Mapping, list, tuple)):
        return None
    try:
        return str(value)
    except ValueError:  # an integer of more than 4,300 digits
        return None


def number_of(value: Any) -> int | float | None:
    """Returns the number that a value is, or that its text spells; None: none."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value if value == value else None
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NUMBER or value[-1] not in "0123456789.":
        return None
    digits = value[1:] if value[0] == "-" else value
    if not digits.isascii() or not digits[:1].isdigit() or digits.strip("0123456789.eE+-"):
        return None
    try:
        return int(value) if digits.isdigit() else float(value)
    except ValueError:
        return None


def members(event: Any, path: str) -> list[Any]:
    """Returns the single values of a field: the members of a list at any depth. Objects have none."""
    found: list[Any] = []
    todo: list[tuple[Any, str]] = [(event, path)]
    while todo:
        value, rest = todo.pop()
        if isinstance(value, (list, tuple)):
            todo += [(each, rest) for each in reversed(value)]
        elif not rest:
            if not isinstance(value, Mapping):
                found.append(value)
        elif isinstance(value, Mapping):
            todo += _inner(value, rest)
    return found


def _inner(value: Mapping[str, Any], path: str) -> list[tuple[Any, str]]:
    """The value of the longest beginning of the path that is a name, and the rest of the path."""
    end = len(path)
    while end > 0:
        name = path[:end]
        if name in value and (end == len(path) or isinstance(value[name], (Mapping, list, tuple))):
            return [(value[name], path[end + 1 :])]
        end = path.rfind(".", 0, end)
    return []
