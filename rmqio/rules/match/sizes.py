"""Finds the rule that makes the patterns of a field too large."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rmqio.rules.errors import Problem
from rmqio.rules.ir import Atom, Kind, Rule, atoms
from rmqio.rules.match.patterns import PATTERN_KINDS

_REPEATS: Final = re.compile(r"\{(\d+)?,?(\d+)?\}")


def too_large(rules: Sequence[Rule], patterns: Sequence[tuple[int, Atom]], reason: str) -> Problem:
    """Returns the problem at the rule whose patterns on the field are the largest: to compile each alone takes long."""
    field = patterns[0][1].field
    sizes = {rule.id: sum(_size(each) for each in set(atoms(rule.condition)) if _is_of(each, field)) for rule in rules}
    largest = max(rules, key=lambda rule: sizes[rule.id])
    name = "conditions without a field" if field is None else f"the field {field!r}"
    return Problem(
        largest.place.file,
        largest.place.line,
        largest.id,
        f"{name}: {reason}. Of {sum(size > 0 for size in sizes.values()):,} rules with patterns there, this one has "
        "the largest: shorten its lists or the repeats of its regular expressions, or raise the limit",
    )


def _is_of(atom: Atom, field: str | None) -> bool:
    return atom.field == field and atom.kind in PATTERN_KINDS


def _size(atom: Atom) -> int:
    """About how large a pattern is: repeats of a regular expression are copies of a part of it."""
    text = str(atom.value)
    size = len(text.encode("utf-8", "replace"))
    if atom.kind is Kind.REGEX:
        for low, high in _REPEATS.findall(text):
            size += 4 * int((high or low or "0")[:6])
    return size
