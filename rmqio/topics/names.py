"""Names of topics and groups that a broker accepts."""

from __future__ import annotations

import re
from typing import Final

from rmqio.errors import LocalError

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_DERIVED: Final = re.compile(r"%(RETRY|DLQ)%[%|a-zA-Z0-9_+-]*")
"""Names that a broker makes of those of groups; of consumers in pop mode, it puts `+` before the topic."""
_MAX_TOPIC: Final = 127
_MAX_GROUP: Final = 120
_MAX_DERIVED: Final = 255


def topic_fault(name: str) -> str:
    """Returns why no topic has the name; empty: one can have it."""
    is_derived = _DERIVED.fullmatch(name) is not None
    return _fault(name, is_derived or _LEGAL.fullmatch(name) is not None, _MAX_DERIVED if is_derived else _MAX_TOPIC)


def group_fault(name: str) -> str:
    """Returns why no consumer or producer group has the name; empty: one can have it."""
    return _fault(name, _LEGAL.fullmatch(name) is not None, _MAX_GROUP)


def validate_topic(name: str) -> None:
    """Raise LocalError unless the broker accepts this topic name (retry and dead-letter topics may be longer)."""
    if fault := topic_fault(name):
        raise LocalError(f"topic name {name!r} is illegal: {fault}")


def validate_group(name: str) -> None:
    """Raise LocalError unless the broker accepts this name of a consumer or producer group."""
    if fault := group_fault(name):
        raise LocalError(f"group name {name!r} is illegal: {fault}")


def _fault(name: str, is_legal: bool, longest: int) -> str:
    if not name:
        return "it is empty"
    if len(name) > longest:
        return f"it has {len(name)} characters, but at most {longest} are allowed"
    return "" if is_legal else "only letters, digits, '_', '-', '%' and '|' are allowed"
