"""Rules as JSON: the representation itself, nothing lost. `rules.schema.json` beside this module describes it.

A text is one rule, or a list of rules. Both ways walk trees without recursion of their own; JSON's parser of Python
limits the depth of a text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.hints import did_you_mean
from rmqio.rules.errors import Problem
from rmqio.rules.formats.base import (
    LEVELS,
    Parsed,
    RuleText,
    joined,
    level_refused,
    line_and_column,
    line_with_caret,
)
from rmqio.rules.ir import (
    FIELD_KINDS,
    OPERATORS,
    And,
    Atom,
    Condition,
    CorrelationKind,
    CorrelationRule,
    Kind,
    Not,
    Or,
    Place,
    Rule,
)

_RULE_KEYS: Final = ("id", "title", "level", "tags", "source", "condition", "correlation")
_ATOM_KEYS: Final = ("field", "is", "value", "ignore_case", "flags")
_CORRELATION_KEYS: Final = (
    "kind", "rules", "timespan_ms", "group_by", "operator", "count", "field", "aliases", "generate",
)  # fmt: skip
_WITHOUT_VALUE: Final = (Kind.EXISTS, Kind.IS_NULL)
_TEXT_KINDS: Final = FIELD_KINDS | {
    Kind.CONTAINS, Kind.STARTS_WITH, Kind.ENDS_WITH, Kind.WILDCARD, Kind.REGEX, Kind.CIDR, Kind.SQL,
}  # fmt: skip
_LARGEST: Final = 10_000_000
"""Characters of a text."""


class _Wrong(Exception):
    """A mistake in a rule, at a path of it."""


def parse(texts: Sequence[RuleText]) -> Parsed:
    """Returns the rules of JSON texts."""
    return joined(_parsed(each) for each in texts)


def dumps(rules: Sequence[Rule | CorrelationRule]) -> str:
    """Returns rules as a JSON text, a line each. Raises `LocalError` for what JSON cannot hold."""
    return "[\n" + ",\n".join(json.dumps(_document(each), allow_nan=False) for each in rules) + "\n]\n"


# ---- text to rules --------------------------------------------------------------------------------------------------


def _parsed(given: RuleText) -> Parsed:
    rules: list[Rule] = []
    correlations: list[CorrelationRule] = []
    problems: list[Problem] = []
    documents: list[tuple[Any, int]] = []
    try:
        documents = _documents(given.text)
    except json.JSONDecodeError as error:
        shown = line_with_caret(given.text, error.lineno, error.colno)
        problems.append(Problem(given.name, error.lineno, "", f"this is not JSON: {error.msg}", shown))
    except (RecursionError, ValueError, _Wrong) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        problems.append(Problem(given.name, 1, "", reason))
    for document, offset in documents:
        line, column = line_and_column(given.text, offset)
        try:
            found = rule_of(document, Place(given.name, line))
        except _Wrong as error:
            rule_id = document.get("id", "") if isinstance(document, Mapping) else ""
            shown = line_with_caret(given.text, line, column)
            problems.append(Problem(given.name, line, rule_id if isinstance(rule_id, str) else "", str(error), shown))
            continue
        if isinstance(found, Rule):
            rules.append(found)
        else:
            correlations.append(found)
    return Parsed(tuple(rules), tuple(correlations), tuple(problems))


def _documents(text: str) -> list[tuple[Any, int]]:
    """The rules of a text, and where each begins: of a list, each is decoded alone, so that its place is known."""
    if len(text) > _LARGEST:
        raise _Wrong(f"the text has {len(text):,} characters, and the most are {_LARGEST:,}: use several files")
    decoder = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_unique)
    at = _skip(text, 1 if text.startswith("\ufeff") else 0)
    if text[at : at + 1] != "[":
        document, end = decoder.raw_decode(text, at)
        if (rest := _skip(text, end)) < len(text):
            raise json.JSONDecodeError("several rules must be a list: [rule, rule]", text, rest)
        return [(document, at)]
    found: list[tuple[Any, int]] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]" or found:
        document, end = decoder.raw_decode(text, at)
        found.append((document, at))
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            break
        if text[at : at + 1] != ",":
            raise json.JSONDecodeError("expected ',' or ']'", text, at)
        at = _skip(text, at + 1)
    if (rest := _skip(text, at + 1)) < len(text):
        raise json.JSONDecodeError("there is more after the list", text, rest)
    return found


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _no_constant(name: str) -> None:
    raise _Wrong(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _Wrong(f"the key {next(name for name in names if names.count(name) > 1)!r} is listed twice")
    return found


def rule_of(document: Any, place: Place | None = None) -> Rule | CorrelationRule:
    """Returns the rule of a decoded JSON object."""
    _check_keys(document, _RULE_KEYS, "rule")
    common: dict[str, Any] = {
        "id": _text(document, "id", "rule", is_needed=True),
        "title": _text(document, "title", "rule"),
        "level": _text(document, "level", "rule") or "medium",
        "tags": _texts(document, "tags", "rule"),
        "place": place or Place(),
    }
    if common["level"] not in LEVELS:
        raise _Wrong(level_refused(common["level"]))
    if ("condition" in document) == ("correlation" in document):
        raise _Wrong("a rule has a condition, or a correlation")
    if "correlation" in document:
        if "source" in document:
            raise _Wrong("a correlation has no source: set the source on its rules instead")
        return _correlation(document["correlation"], common)
    source = document.get("source", {})
    if not isinstance(source, Mapping) or not all(isinstance(each, str) for each in source.values()):
        raise _Wrong("source is an object of texts")
    return Rule(condition=condition_of(document["condition"]), source=tuple(source.items()), **common)


def condition_of(document: Any) -> Condition:
    """Returns the condition of a decoded JSON object."""
    # From the leaves up, with a stack: a path can be as long as the text is deep.
    root: list[Condition] = []
    todo: list[tuple[Any, str, list[Condition], Any]] = [(document, "condition", root, None)]
    while todo:
        node, path, into, made = todo.pop()
        if made is not None:
            kind, done = made
            into.append(Not(done[0]) if kind == "not" else And(tuple(done)) if kind == "all" else Or(tuple(done)))
            continue
        if not isinstance(node, Mapping):
            raise _Wrong(f"{path}: a condition is an object, not {_shown(node)}")
        operator = next((each for each in ("all", "any", "not") if each in node), None)
        if operator is None:
            into.append(_atom(node, path))
            continue
        if len(node) > 1:
            raise _Wrong(f"{path}: {operator!r} must be alone in its object")
        inner = [node["not"]] if operator == "not" else node[operator]
        if not isinstance(inner, Sequence) or isinstance(inner, str):
            raise _Wrong(f"{path}.{operator} is a list of conditions, not {_shown(inner)}")
        parts: list[Condition] = []
        todo.append((None, path, into, (operator, parts)))
        for number, each in reversed(list(enumerate(inner))):
            todo.append((each, f"{path}.not" if operator == "not" else f"{path}.{operator}[{number}]", parts, None))
    return root[0]


def _atom(node: Mapping[str, Any], path: str) -> Atom:
    _check_keys(node, (*_ATOM_KEYS, "all", "any", "not"), path)
    name = _text(node, "is", path, is_needed=True)
    try:
        kind = Kind(name)
    except ValueError:
        known = [each.value for each in Kind]
        raise _Wrong(f"{path}: {name!r} is not one of {', '.join(known)}{did_you_mean(name, known)}") from None
    field = node.get("field")
    if not (field is None or isinstance(field, str)):
        raise _Wrong(f"{path}.field is text, not {_shown(field)}")
    if "field" in node and field is None:
        raise _Wrong(f"{path}.field is text; without it, the condition is on any text of the event")
    value = node.get("value")
    if ("value" in node) == (kind in _WITHOUT_VALUE):
        raise _Wrong(f"{path}: {kind.value!r} has {'no' if 'value' in node else 'a'} value")
    if isinstance(value, Mapping) or (isinstance(value, Sequence) and not isinstance(value, str)):
        raise _Wrong(f"{path}.value is a text, number, boolean or null, not {_shown(value)}")
    if kind in _TEXT_KINDS and not isinstance(value, str):
        raise _Wrong(f"{path}.value: {kind.value!r} takes text, not {_shown(value)}")
    ignore_case = node.get("ignore_case", False)
    if not isinstance(ignore_case, bool):
        raise _Wrong(f"{path}.ignore_case is true or false, not {_shown(ignore_case)}")
    flags = _text(node, "flags", path)
    if set(flags) - set("ims"):
        raise _Wrong(f"{path}.flags are some of i, m and s, not {flags!r}")
    return Atom(field, kind, value, ignore_case, flags)


def _correlation(node: Any, common: dict[str, Any]) -> CorrelationRule:
    path = "correlation"
    _check_keys(node, _CORRELATION_KEYS, path)
    kinds = [each.value for each in CorrelationKind]
    kind = _text(node, "kind", path, is_needed=True)
    if kind not in kinds:
        raise _Wrong(f"{path}: {kind!r} is not one of {', '.join(kinds)}{did_you_mean(kind, kinds)}")
    operator = _text(node, "operator", path) or "gte"
    if operator not in OPERATORS:
        raise _Wrong(f"{path}.operator: {operator!r} is not one of {', '.join(OPERATORS)}")
    span, count = node.get("timespan_ms"), node.get("count", 1)
    if not isinstance(span, int) or isinstance(span, bool) or span <= 0:
        raise _Wrong(f"{path}.timespan_ms is a positive whole number, not {_shown(span)}")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise _Wrong(f"{path}.count is a whole number, not {_shown(count)}")
    aliases = node.get("aliases", [])
    if not isinstance(aliases, list) or not all(
        isinstance(each, list) and len(each) == 3 and all(isinstance(part, str) for part in each) for each in aliases
    ):
        raise _Wrong(f"{path}.aliases is a list of [name, rule, field]")
    rules = _texts(node, "rules", path)
    field = _text(node, "field", path)
    if not rules:
        raise _Wrong(f"{path}.rules names no rule")
    if kind == CorrelationKind.VALUE_COUNT and not field:
        raise _Wrong(f"{path}: value_count needs a field")
    generate = node.get("generate", False)
    if not isinstance(generate, bool):
        raise _Wrong(f"{path}.generate is true or false, not {_shown(generate)}")
    return CorrelationRule(
        kind=CorrelationKind(kind),
        rules=rules,
        timespan_ms=span,
        group_by=_texts(node, "group_by", path),
        operator=operator,
        count=count,
        field=field,
        aliases=tuple((name, rule, field) for name, rule, field in aliases),
        generate=generate,
        **common,
    )


def _check_keys(node: Any, known: Sequence[str], path: str) -> None:
    if not isinstance(node, Mapping):
        raise _Wrong(f"a {path} is an object, not {_shown(node)}")
    for key in node:
        if key not in known:
            raise _Wrong(f"{path}: there is no key {key!r}{did_you_mean(key, known)}")


def _text(node: Mapping[str, Any], key: str, path: str, *, is_needed: bool = False) -> str:
    found = node.get(key, "")
    if not isinstance(found, str):
        raise _Wrong(f"{path}: {key} is text, not {_shown(found)}")
    if is_needed and not found:
        raise _Wrong(f"{path}: {key!r} is missing")
    return found


def _texts(node: Mapping[str, Any], key: str, path: str) -> tuple[str, ...]:
    found = node.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise _Wrong(f"{path}: {key} is a list of texts")
    return tuple(found)


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:
        return "a value that is nested too deeply"
    return text if len(text) <= 40 else f"{text[:37]}..."


# ---- rules to text --------------------------------------------------------------------------------------------------


def _document(rule: Rule | CorrelationRule) -> dict[str, Any]:
    found: dict[str, Any] = {"id": rule.id}
    if rule.title:
        found["title"] = rule.title
    if rule.level != "medium":
        found["level"] = rule.level
    if rule.tags:
        found["tags"] = list(rule.tags)
    if isinstance(rule, CorrelationRule):
        return found | {"correlation": _of_correlation(rule)}
    if rule.source:
        found["source"] = dict(rule.source)
        if len(found["source"]) != len(rule.source):
            raise LocalError(f"rule {rule.id}: its source has a name twice, which JSON cannot hold")
    return found | {"condition": of_condition(rule.condition, rule.id)}


def _of_correlation(rule: CorrelationRule) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": rule.kind.value, "rules": list(rule.rules), "timespan_ms": rule.timespan_ms}
    found |= {"operator": rule.operator, "count": rule.count}
    for key, value in (("group_by", list(rule.group_by)), ("field", rule.field)):
        if value:
            found[key] = value
    if rule.aliases:
        found["aliases"] = [list(each) for each in rule.aliases]
    if rule.generate:
        found["generate"] = True
    return found


def of_condition(condition: Condition, rule_id: str = "") -> dict[str, Any]:
    """Returns the object of a condition. Raises `LocalError` for a number that JSON does not have."""
    root: list[dict[str, Any]] = []
    todo: list[tuple[Condition, list[dict[str, Any]]]] = [(condition, root)]
    while todo:
        one, into = todo.pop()
        if isinstance(one, Atom):
            into.append(_of_atom(one, rule_id))
            continue
        parts: list[dict[str, Any]] = []
        if isinstance(one, Not):
            holder: dict[str, Any] = {"not": None}
            into.append(holder)
            todo.append((one.condition, _Setter(holder)))
        else:
            into.append({"all" if isinstance(one, And) else "any": parts})
            todo += [(each, parts) for each in reversed(one.conditions)]
    return root[0]


class _Setter(list[Any]):
    """Takes the one condition of a NOT."""

    def __init__(self, holder: dict[str, Any]) -> None:
        super().__init__()
        self._holder = holder

    def append(self, item: Any) -> None:
        self._holder["not"] = item


def _of_atom(atom: Atom, rule_id: str) -> dict[str, Any]:
    found: dict[str, Any] = {} if atom.field is None else {"field": atom.field}
    found["is"] = atom.kind.value
    if atom.kind not in _WITHOUT_VALUE:
        if isinstance(atom.value, float) and not math.isfinite(atom.value):
            raise LocalError(f"rule {rule_id}: {atom.value} is a number that JSON does not have")
        found["value"] = atom.value
    if atom.ignore_case:
        found["ignore_case"] = True
    if atom.flags:
        found["flags"] = atom.flags
    return found
