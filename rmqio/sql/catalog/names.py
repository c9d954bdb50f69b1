"""Names of topics and groups that a broker accepts: others are refused when a table is created."""

from __future__ import annotations

import re
from typing import Final

from rmqio.sql.errors import Refusal
from rmqio.sql.syntax.statements import Option

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_LONGEST: Final = {"topic": 127, "dead_letters": 127, "group": 120, "producer_group": 120}
_LONGEST_DERIVED: Final = 255
_DERIVED: Final = ("%RETRY%", "%DLQ%")


def topic_fault(name: str) -> str:
    """Returns why no topic has the name; empty: one can have it."""
    return _fault(name, _LONGEST_DERIVED if name.startswith(_DERIVED) else _LONGEST["topic"])


def check_names(options: dict[str, Option]) -> None:
    """Raises `Refusal` for an option that names a topic or a group as none can be named."""
    for what, longest in _LONGEST.items():
        option = options.get(what)
        name = option.value.strip() if option else ""
        if option is None or not name:
            continue
        fault = _fault(name, longest) if longest < _LONGEST["topic"] else topic_fault(name)
        if fault:
            kind = "group" if "group" in what else "topic"
            raise Refusal(f"{option.key} is {name!r}, which is not a valid {kind} name: {fault}", option.value_span)


def _fault(name: str, longest: int) -> str:
    if len(name) > longest:
        return f"it has {len(name)} characters, but at most {longest} are allowed"
    return "" if _LEGAL.fullmatch(name) else "only letters, digits, '_', '-', '%' and '|' are allowed"
