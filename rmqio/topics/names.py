"""Names of topics and groups that a broker accepts."""

from __future__ import annotations

import re
from typing import Final

from rmqio.errors import LocalError

_LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_MAX_TOPIC: Final = 127
_MAX_GROUP: Final = 120
_MAX_DERIVED: Final = 255
_DERIVED_PREFIXES: Final = ("%RETRY%", "%DLQ%")


def validate_topic(name: str) -> None:
    """Raise LocalError unless the broker accepts this topic name (retry and dead-letter topics may be longer)."""
    _validate("topic", name, _MAX_DERIVED if name.startswith(_DERIVED_PREFIXES) else _MAX_TOPIC)


def validate_group(name: str) -> None:
    """Raise LocalError unless the broker accepts this name of a consumer or producer group."""
    _validate("group", name, _MAX_GROUP)


def _validate(what: str, name: str, longest: int) -> None:
    if not name:
        raise LocalError(f"{what} name is empty")
    if len(name) > longest:
        raise LocalError(f"{what} name {name!r} has {len(name)} characters; at most {longest} are allowed")
    if not _LEGAL_NAME.fullmatch(name):
        raise LocalError(f"{what} name {name!r} is illegal: only letters, digits, '_', '-', '%' and '|' are allowed")
