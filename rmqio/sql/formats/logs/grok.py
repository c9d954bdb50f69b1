"""Grok: regular expressions made of named patterns, `%{IP:client}`, to fields of a line.

The engine is `regex`, since it can be told how long it may take: a pattern can need more steps for a line than there
is time. A line that is not matched in time fails, and is not waited for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rmqio.sql.errors import nearest
from rmqio.sql.formats.logs.patterns import PATTERNS
from rmqio.sql.regexes import LARGEST, TIMEOUT_S, import_regex, in_time, size_of
from rmqio.sql.values import ValueFailure, shown

_REFERENCE: Final = re.compile(r"%\{([^{}]*)\}")
_PARTS: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::([^:]+))?(?::([a-z]+))?")
_KINDS: Final = ("int", "float", "long", "double", "string", "boolean")
_MOST_PARTS: Final = 2000
"""References in one pattern, with those of the patterns that it names."""


class WrongPattern(ValueFailure):
    """A grok pattern that is not valid."""


class Grok(NamedTuple):
    """A compiled pattern. `groups`: the names of the fields, and the groups of the expression that give them."""

    expression: Any
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    timeout_s: float

    @property
    def names(self) -> list[str]:
        """The names of the fields, in the order in which they come first."""
        return [name for name, _ in self.groups]

    def match(self, line: str) -> dict[str, str] | None:
        """Returns the fields that are found in the line; None: it does not match. Raises `ValueFailure` if it is slow.

        The first part that matches counts if several have one name. Parts that match nothing are left out.
        """
        try:
            found = in_time(self.expression.search, self.timeout_s, line)
        except TimeoutError:
            limit = f"{self.timeout_s:g} s"
            raise ValueFailure(f"the grok pattern was not matched within {limit}: it begins {shown(line)}") from None
        if found is None:
            return None
        fields = {}
        for name, groups in self.groups:
            for group in groups:
                text = found[group]
                if text is not None:
                    fields[name] = text
                    break
        return fields


def compiled(pattern: str, own: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> Grok:
    """Returns the compiled pattern. `own`: further patterns by name. Raises `WrongPattern` if it is not valid."""
    return _compiled(pattern, tuple(sorted((own or {}).items())), timeout_s)


@lru_cache(maxsize=500)
def _compiled(pattern: str, own: tuple[tuple[str, str], ...], timeout_s: float) -> Grok:
    regex = import_regex("grok patterns")
    places: dict[str, str] = {}
    text = _expanded(pattern, {**PATTERNS, **dict(own)}, places)
    if size_of(text) > LARGEST:
        raise WrongPattern(
            f"{shown(pattern)} is too large: with its patterns, and its repeats such as {{1000}} written out, it has "
            f"more than {LARGEST:,} characters"
        )
    try:
        expression = regex.compile(text, regex.DOTALL | regex.MULTILINE)  # as Logstash, whose lines can be several
    except (regex.error, OverflowError, RecursionError) as error:
        raise WrongPattern(f"{shown(pattern)} is not a grok pattern: {error}") from None
    fields: dict[str, list[int]] = {}
    for group, index in sorted(expression.groupindex.items(), key=lambda each: each[1]):
        fields.setdefault(places.get(group, group), []).append(index)
    return Grok(expression, tuple((name, tuple(groups)) for name, groups in fields.items()), timeout_s)


def _expanded(pattern: str, known: Mapping[str, str], places: dict[str, str]) -> str:
    """The regular expression. Groups get names of their own, since a field can have any: `places` has its name."""
    count = 0

    def expand(text: str, within: tuple[str, ...]) -> str:
        def part(found: re.Match[str]) -> str:
            nonlocal count
            count += 1
            if count > _MOST_PARTS:
                raise WrongPattern(f"{shown(pattern)} has more than {_MOST_PARTS} parts, with those of its patterns")
            parts = _PARTS.fullmatch(found[1])
            if parts is None:
                raise WrongPattern(f"{found[0]} is not a part of a grok pattern; one is %{{IP:client}}")
            name, field, kind = parts.groups()
            if kind is not None and kind not in _KINDS:
                raise WrongPattern(f"{found[0]}: {kind} is not a type{nearest(kind, _KINDS)}")
            if name not in known:
                raise WrongPattern(f"there is no grok pattern {name}{nearest(name, known)}")
            if name in within:
                raise WrongPattern(f"the grok pattern {name} contains itself")
            inner = expand(known[name], (*within, name))
            if field is None:
                return f"(?:{inner})"
            group = f"grok_{len(places)}"
            places[group] = _field(field)
            return f"(?P<{group}>{inner})"

        if "%{" in _REFERENCE.sub("", text):
            raise WrongPattern(f"{shown(text)} has a %{{ without its }}; a part of a grok pattern is %{{IP:client}}")
        return _REFERENCE.sub(part, text)

    return expand(pattern, ())


def _field(name: str) -> str:
    """Logstash's `[http][status]` is `http.status`."""
    return ".".join(re.findall(r"\[([^\[\]]+)\]", name)) if re.fullmatch(r"(?:\[[^\[\]]+\])+", name) else name
