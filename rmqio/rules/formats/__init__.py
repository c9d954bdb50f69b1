"""The formats of rules: Sigma's YAML, texts of WHERE, and JSON. Each makes values of `ir` of texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from rmqio.errors import LocalError
from rmqio.hints import did_you_mean
from rmqio.rules.errors import Problem
from rmqio.rules.formats.base import Parsed, RuleText, joined
from rmqio.rules.formats.mapping import Mapping

__all__ = ["FORMATS", "Mapping", "Parsed", "RuleText", "check_format", "parse"]

FORMATS: Final = ("sigma", "where", "json")
_BY_SUFFIX: Final = {".yml": "sigma", ".yaml": "sigma", ".json": "json", ".sql": "where", ".where": "where"}


def check_format(name: str | None) -> None:
    """Raises `LocalError` for a format that there is not. None: the suffix of each file says it."""
    if name is not None and name not in FORMATS:
        raise LocalError(f"format={name!r} is not one of {', '.join(FORMATS)}{did_you_mean(name, FORMATS)}")


def parse(texts: Sequence[RuleText], format: str | None = None, mapping: Mapping | None = None) -> Parsed:
    """Returns the rules of texts. Without a format, the suffix of a name says it.

    The mapping is applied to rules of Sigma and JSON; conditions of SQL name the fields of the events themselves.
    Raises `LocalError` if the format is unknown, or its package is not installed.
    """
    check_format(format)
    mapping = mapping or Mapping()
    by_format: dict[str, list[RuleText]] = {}
    unknown: list[Problem] = []
    for each in texts:
        name = format or _BY_SUFFIX.get(PurePath(each.name).suffix.lower(), "")
        if name:
            by_format.setdefault(name, []).append(each)
        else:
            known = ", ".join(_BY_SUFFIX)
            reason = f"the suffix says no format: it is not one of {known}; give format= one of {', '.join(FORMATS)}"
            unknown.append(Problem(each.name, 0, "", reason))
    found = [Parsed(problems=tuple(unknown))]
    for name, some in by_format.items():
        if name == "sigma":
            from rmqio.rules.formats import sigma

            found.append(mapping.applied(sigma.parse(some, mapping.pipeline())))
        elif name == "where":
            from rmqio.rules.formats import where_rules

            found.append(where_rules.parse(some))
        else:
            from rmqio.rules.formats import json_rules

            found.append(mapping.applied(json_rules.parse(some)))
    return joined(found)
