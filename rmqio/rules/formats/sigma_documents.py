"""The YAML documents of Sigma's texts: each with its place, and what pySigma makes of it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Literal

import re2  # type: ignore[import-not-found,import-untyped,unused-ignore]
import yaml
from sigma.collection import deep_dict_update
from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaConditionError, SigmaError, SigmaValueError
from sigma.filters import SigmaFilter
from sigma.modifiers import SigmaExpandModifier, SigmaModifier, SigmaValueModifier, SigmaWideModifier, modifier_mapping
from sigma.policy import SigmaPolicy
from sigma.policy.regex_engine import RegexEngine
from sigma.rule import SigmaDetectionItem, SigmaRule
from sigma.rule.base import SigmaYAMLLoader, check_alias_expansion
from sigma.types import (
    Placeholder,
    SigmaExpansion,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaString,
    SigmaType,
    type_map,
)
from yaml.constructor import SafeConstructor

from rmqio.hints import did_you_mean
from rmqio.rules.errors import Problem
from rmqio.rules.formats import yaml_text
from rmqio.rules.formats.base import RuleText, level_refused, line_with_caret
from rmqio.rules.ir import Place

# What the specification of Sigma has and pySigma lacks: detections, so that pySigma's parser takes them.
#
# Modifiers of our own have names that no rule can have, since pySigma's table of modifiers is one for the whole
# process.

_SELECTOR: Final = re.compile(r"\b(1|any|all)\s+of\s+([A-Za-z0-9_*-]*-[A-Za-z0-9_*-]*)")
_DASH: Final = re.compile(r"\B[-/]\b")
_DASHES: Final = ("-", "/", "\u2013", "\u2014", "\u2015")
_ESCAPED: Final = re.compile(r"\\[\\%]")
_PERCENT: Final = "\uffff"
"""It stands for an escaped percent sign while pySigma looks for placeholders. It is no character of Unicode."""


class _WindowsDash(SigmaValueModifier[SigmaString, SigmaExpansion]):
    """`windash` without pySigma's bound of three places: the number of texts has a bound of its own."""

    def modify(self, val: SigmaString) -> SigmaExpansion:
        parts = val.replace_with_placeholder(_DASH, "_windash").s
        is_dash = [isinstance(each, Placeholder) and each.name == "_windash" for each in parts]
        made: list[SigmaType] = []
        for some in product(*(_DASHES if one else (each,) for each, one in zip(parts, is_dash, strict=True))):
            text = SigmaString()
            text.s = list(some)
            made.append(text)
        return SigmaExpansion(made)


class _Expand(SigmaExpandModifier):
    """`expand`, after which escaped percent signs are plain ones."""

    def modify(self, val: SigmaString | SigmaRegularExpression) -> SigmaString | SigmaRegularExpression:
        made = super().modify(val)
        text = made.regexp if isinstance(made, SigmaRegularExpression) else made
        text.s = [each.replace(_PERCENT, "%") if isinstance(each, str) else each for each in text.s]
        return made


class _Whole(int):
    """An integer of more than 53 bits, of which pySigma's numbers would be a float."""


def _number(value: _Whole) -> SigmaNumber:
    made = SigmaNumber(0)
    made.number = int(value)
    return made


type_map[_Whole] = _number  # type: ignore[assignment]
_OURS: Final[dict[str, type[SigmaModifier[Any, Any]]]] = {
    "utf16le": SigmaWideModifier,
    "windash": _WindowsDash,
    "expand": _Expand,
}
_NAMES: Final = {name: f"{name} of rmqio" for name in _OURS}
MODIFIERS: Final = sorted({*modifier_mapping, *_OURS})
"""All that there are, for rules."""
modifier_mapping.update({_NAMES[name]: modifier for name, modifier in _OURS.items()})


_TEXT: Final = "a text"
_NUMBER: Final = "a number"
_TAKEN: Final = {
    _TEXT: (
        "contains", "startswith", "endswith", "re", "cidr", "base64", "base64offset", "wide", "utf16", "utf16be",
        "utf16le", "windash", "expand", "cased", "fieldref",
    ),
    _NUMBER: ("lt", "lte", "gt", "gte"),
    "true or false": ("exists",),
}  # fmt: skip
"""What the first modifier of a field takes; those that are not here take any value."""


def name_of(modifier: str) -> str:
    """Returns the name that rules have for a class of a modifier."""
    return next((name for name, each in (modifier_mapping | _OURS).items() if each.__name__ == modifier), modifier)


def understood(detection: Any, *, is_filter: bool) -> Any:
    """Returns a detection that pySigma takes. Raises `SigmaError` for what it would take as something else."""
    if not isinstance(detection, dict):
        return detection
    names = [name for name in detection if name != "condition" and not (is_filter and name == "rules")]
    made = {name: _parsed_items(name, value) if name in names else value for name, value in detection.items()}
    if "condition" in made:
        condition = made["condition"]
        texts = condition if isinstance(condition, list) else [condition]
        if not texts or any(each is None or not str(each).strip() for each in texts):
            raise SigmaConditionError("'condition' is empty: it says which detections must hold")
        texts = [_condition(str(each), names) for each in texts]
        made["condition"] = texts if isinstance(condition, list) else texts[0]
    return made


def item_of(key: str, value: Any) -> tuple[str, Any]:
    """Returns a field, with its modifiers, and the value, so that pySigma takes them. Raises `SigmaError`."""
    field, *modifiers = key.split("|")
    _require_some(key, value)
    values = value if isinstance(value, list) else [value]
    if "fieldref" in modifiers:
        if "cased" in modifiers:
            raise SigmaValueError("fieldref ignores case: cased with it is not supported")
        values = [str(each) if type(each) in (int, float) else each for each in values]
        if any(isinstance(each, str) and not each.strip() for each in values):
            raise SigmaValueError(f"{key!r} names no field: its value is empty")
    for each in values:
        _require_kind(key, modifiers, each)
    values = [*map(_exact, values)]
    if "expand" in modifiers:
        values = [_ESCAPED.sub(_unescaped, each) if isinstance(each, str) else each for each in values]
    return "|".join((field, *(_NAMES.get(each, each) for each in modifiers))), values


def keyword_of(name: str, value: Any) -> Any:
    """Returns a keyword of a detection so that pySigma takes it. Raises `SigmaError`."""
    _require_kind(name, (), value)
    return _exact(value)


def _require_some(key: str, value: Any) -> None:
    if value == []:
        raise SigmaValueError(f"{key!r} has an empty list, and no value is in it: leave it out, or say null")


def _require_kind(key: str, modifiers: Sequence[str], value: Any) -> None:
    """Raises `SigmaValueError` for a value that a field with these modifiers does not take."""
    if isinstance(value, (dict, list, set)):
        kind = "a list in a list" if isinstance(value, list) else "an object"
        one = "a value is a text, a number, true, false or null, or a list of these"
        raise SigmaValueError(f"{key!r} has {kind}: {one}")
    if value is not None and not isinstance(value, (str, int, float)):
        raise SigmaValueError(f"{key!r} has {value}, a {type(value).__name__} of YAML: write it as a text, in quotes")
    first = "re" if "re" in modifiers else modifiers[0] if modifiers else ""
    wanted = next((kind for kind, names in _TAKEN.items() if first in names), "")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_it = {_TEXT: isinstance(value, str), _NUMBER: is_number, "": True}.get(wanted, isinstance(value, bool))
    if not is_it:
        shown = repr(value) if isinstance(value, str) else json.dumps(value)
        hint = f": write '{shown}'" if wanted == _TEXT and value is not None else ""
        raise SigmaValueError(f"{key!r} takes {wanted}, not {shown}{hint}")


def _parsed_items(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return dict(item_of(str(key), each) for key, each in value.items())
    if isinstance(value, list):
        _require_some(name, value)  # a list of keywords, or of items
        return [_parsed_items(name, each) for each in value]
    return keyword_of(name, value)


def _exact(value: Any) -> Any:
    return _Whole(value) if type(value) is int and value.bit_length() > 53 else value


def _condition(text: str, names: Sequence[str]) -> str:
    """The condition with the names that a pattern with dashes stands for: pySigma's patterns have none."""

    def named(found: re.Match[str]) -> str:
        pattern = re.compile(".*".join(map(re.escape, found[2].split("*"))))
        some = [each for each in names if pattern.fullmatch(each) and (found[2][0] == "_" or each[0] != "_")]
        if not some:
            raise SigmaConditionError(f"Selector '{found[1]} of {found[2]}' doesn't match any detection")
        return f"({(' and ' if found[1] == 'all' else ' or ').join(some)})"

    return _SELECTOR.sub(named, text)


def _unescaped(found: re.Match[str]) -> str:
    return _PERCENT if found[0] == r"\%" else found[0]


# The policy for pySigma: RE2 checks regular expressions, as it does by default, but logs nothing on standard error.

_FLAGS: Final = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}


class _Quiet(RegexEngine):
    """It has no attributes, because pySigma copies rules with their policy."""

    def compile(self, pattern: str, flags: int = 0) -> Any:
        options = re2.Options()
        options.log_errors = False
        given = "".join(letter for flag, letter in _FLAGS.items() if flags & flag)
        try:
            return re2.compile(f"(?{given}){pattern}" if given else pattern, options)
        except re2.error as error:
            text = error.args[0] if error.args else ""
            raise re2.error(text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)) from error

    @property
    def error(self) -> type[Exception]:
        found: type[Exception] = re2.error
        return found


POLICY: Final = SigmaPolicy(regex_engine=_Quiet())


# The number of texts that a Sigma rule stands for. pySigma makes all of them before anything can be refused.

MOST_TEXTS: Final = 100_000
"""Texts of one rule: pySigma takes about 25 us and 2 KB for each."""
_DASH_COUNT: Final = 5
_OFFSETS: Final = 3


def texts_of(detection: Any) -> int:
    """Returns how many texts the values of a detection become. The values have no circles."""
    found = 0
    todo: list[tuple[str, Any]] = [("", detection)]
    if isinstance(detection, dict):
        todo = [(str(name), each) for name, each in detection.items() if name != "condition"]
    while todo:
        key, value = todo.pop()
        if isinstance(value, dict):
            todo += ((str(name), each) for name, each in value.items())
        elif isinstance(value, list):
            todo += ((key, each) for each in value)
        else:
            found += _texts(key, value)
    return found


def _texts(key: str, value: Any) -> int:
    _, *modifiers = key.split("|")
    count = 1
    for each in modifiers:
        if each == "windash":
            count *= _DASH_COUNT ** len(_DASH.findall(str(value)))
        elif each == "base64offset":
            count *= _OFFSETS
    return count


Kind = Literal["rule", "correlation", "filter"]
Refuse = Callable[[SigmaDetectionItem], object]
_UNKNOWN_MODIFIER: Final = re.compile(r"Unknown modifier '(.*)'")
_UNKNOWN_LEVEL: Final = re.compile(r"'(.*)' is not a valid Sigma rule level")
_INCOMPATIBLE: Final = re.compile(r"Modifier (\w+) incompatible to value type of '(.*)'")
_ACTIONS: Final = ("global", "reset", "repeat")
_CORRELATED: Final = ("timespan", "group-by", "generate", "aliases", "condition", "type", "rules")
"""Keys of correlations, by which pySigma's errors call them."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a text. `rule` is pySigma's value of its kind; `node` is the YAML, which knows places."""

    text: RuleText
    node: Any
    data: dict[str, Any]
    kind: Kind
    rule: Any
    shared: tuple[Any, ...] = ()
    """The YAML of other documents that this one takes parts of."""

    @property
    def id(self) -> str:
        """The id; without one the name, and without both the title."""
        return str(self.data.get("id") or self.data.get("name") or self.data.get("title") or "")

    @property
    def name(self) -> str:
        return str(self.data.get("name") or "")

    @property
    def place(self) -> Place:
        return Place(self.text.name, self.node.start_mark.line + 1)

    def problem(self, reason: str, error: Exception | None = None, path: Sequence[str] = ()) -> Problem:
        """Returns the problem of this rule, at the key that the error is about, or as far along a path as there is."""
        mark = _along(self.node, path) if error is None else _mark((self.node, *self.shared), error)
        return self._at(mark, reason)

    def item_problem(self, error: Exception, refuse: Refuse, filters: Sequence[Document]) -> Problem:
        """Returns the problem of an item of this rule, or of a filter of it, that `refuse` refuses with this error."""
        for each in (self, *filters):
            for node in (each.node, *each.shared):
                if (mark := _item_mark(node, error, refuse)) is not None:
                    return each._at(mark, str(error))._replace(rule_id=self.id)
        return self.problem(str(error))

    def _at(self, mark: Any, reason: str) -> Problem:
        shown = line_with_caret(self.text.text, mark.line + 1, mark.column + 1)
        return Problem(self.text.name, mark.line + 1, self.id, reason, shown)


def documents(text: RuleText, problems: list[Problem]) -> Iterator[Document]:
    """Yields the documents that are rules, correlations or filters; adds what is wrong with others to `problems`."""
    template: dict[str, Any] = {}
    before: dict[str, Any] = {}
    template_nodes: tuple[Any, ...] = ()
    before_nodes: tuple[Any, ...] = ()
    for node, data in _loaded(text, problems):
        if data is None:
            continue
        if not isinstance(data, dict):
            problems.append(_at(text, node, "a document of Sigma is an object of keys and values"))
            continue
        try:
            check_alias_expansion(data)
        except SigmaError as error:
            problems.append(_at(text, node, str(error)))
            continue
        action = data.pop("action", None)
        if action == "global":
            template, template_nodes = data, (node,)
            continue
        if action == "reset":
            template, template_nodes = {}, ()
            continue
        shared: tuple[Any, ...] = ()
        if action == "repeat":
            data, shared = deep_dict_update(copy.deepcopy(before), data), before_nodes
        elif action is not None:
            problems.append(_at(text, node, f"action: {action!r} is not one of {', '.join(_ACTIONS)}"))
            continue
        elif "correlation" not in data and "filter" not in data:
            data, shared = deep_dict_update(data, copy.deepcopy(template)), template_nodes
        before, before_nodes = data, (node, *shared)
        yield from _of_data(text, before_nodes, data, problems)


def _of_data(
    text: RuleText, nodes: tuple[Any, ...], data: dict[str, Any], problems: list[Problem]
) -> Iterator[Document]:
    kind: Kind = "correlation" if "correlation" in data else "filter" if "filter" in data else "rule"
    classes: dict[Kind, Any] = {"rule": SigmaRule, "correlation": SigmaCorrelationRule, "filter": SigmaFilter}
    given = Document(text, nodes[0], data, kind, None, nodes[1:])
    if (texts := texts_of(data.get("detection") or data.get("filter"))) > MOST_TEXTS:
        many = f"its values stand for {texts:,} texts; one rule can have {MOST_TEXTS:,}: split it"
        problems.append(given.problem(many))
        return
    key = "filter" if kind == "filter" else "detection"
    try:
        if key in data:
            data = {**data, key: understood(data[key], is_filter=kind == "filter")}
        more = {} if kind == "correlation" else {"policy": POLICY}
        rule = classes[kind].from_dict(copy.deepcopy(data), collect_errors=True, **more)
    except Exception as error:  # noqa: BLE001  # pySigma raises what Python raises on values that it does not expect
        problems.append(given.problem(reason_of(error), error))
        return
    problems += [given.problem(reason_of(error), error) for error in rule.errors]
    if not given.id and kind != "filter":
        problems.append(given.problem("the rule has no id, name or title"))
    elif not rule.errors:
        yield replace(given, rule=rule)


def reason_of(error: Exception) -> str:
    """Returns the text of an error, on one line."""
    text = " ".join(str(error).split())
    if unknown := _UNKNOWN_MODIFIER.fullmatch(text):
        return f"there is no modifier {unknown[1]!r}{did_you_mean(unknown[1], MODIFIERS)}"
    if unknown := _UNKNOWN_LEVEL.fullmatch(text):
        return level_refused(unknown[1])
    if wrong := _INCOMPATIBLE.fullmatch(text):
        what = "what is before it" if wrong[2].startswith(("Sigma", "<")) else repr(wrong[2])
        return f"the modifier {name_of(wrong[1])} cannot be applied to {what}"
    return text if isinstance(error, SigmaError) else f"the rule is malformed: {type(error).__name__}: {text}"


def _loaded(text: RuleText, problems: list[Problem]) -> Iterator[tuple[Any, Any]]:
    content = text.text.removeprefix("\ufeff")
    for each in yaml_text.documents(content, SigmaYAMLLoader):
        if isinstance(each, yaml_text.Fault):
            shown = line_with_caret(content, each.line, each.column)
            problems.append(Problem(text.name, each.line, each.rule_id, each.reason, shown))
        else:
            yield each


def _at(text: RuleText, node: Any, reason: str) -> Problem:
    line = node.start_mark.line + 1
    return Problem(text.name, line, "", reason, line_with_caret(text.text, line, node.start_mark.column + 1))


# ---- places of errors -----------------------------------------------------------------------------------------------


def _mark(nodes: Sequence[Any], error: Exception) -> Any:
    """The place of the key that an error is about: pySigma's errors have none, so that each item is tried alone."""
    for node in nodes:
        if isinstance(error, SigmaConditionError):
            detection = _detection(node)
            if detection is not None:
                condition = _value(detection, "condition")
                return (condition or detection).start_mark
        elif (mark := _item_mark(node, error)) is not None:
            return mark
    text = str(error).lower()
    for node in nodes:
        correlation = _value(node, "correlation")
        for name in _CORRELATED:
            if name.removesuffix("es") in text and _value(correlation, name) is not None:
                return _along(correlation, (name,))
        for name in ("correlation", "logsource", "level", "status", "date", "tags", "id"):
            if name in text and (found := _value(node, name)) is not None:
                return found.start_mark
    return nodes[0].start_mark


def _item_mark(node: Any, error: Exception, refuse: Refuse | None = None) -> Any:
    """The place of the item that ends with this error, if there is one."""
    detection = _detection(node)
    for name, value in detection.value if isinstance(detection, yaml.MappingNode) else ():
        if name.value == "condition":
            continue
        for mark, key, item in _items(name, value):
            try:
                if key is None:
                    made = SigmaDetectionItem.from_mapping(None, keyword_of(name.value, _plain(item)))
                else:
                    made = SigmaDetectionItem.from_mapping(*item_of(key, _plain(item)), policy=POLICY)
                if refuse is not None:
                    refuse(made)
            except Exception as wrong:  # noqa: BLE001  # as where the rule is made
                if str(wrong) == str(error):
                    return mark
    return None


def _along(node: Any, path: Sequence[str]) -> Any:
    """The place of the last key or text of a path that is there."""
    mark = node.start_mark
    for name in path:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == name), None)
        else:
            some = node.value if isinstance(node, yaml.SequenceNode) else [node]
            pair = next(((each, each) for each in some if each.value == name), None)
        if pair is None:
            break
        mark, node = pair[0].start_mark, pair[1]
    return mark


def _detection(node: Any) -> Any:
    return _value(node, "detection") or _value(node, "filter")


def _value(node: Any, name: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)


def _items(key: Any, value: Any) -> Iterator[tuple[Any, str | None, Any]]:
    """Yields the items of a detection: the place, the name of the field with its modifiers, if any, and the value."""
    if isinstance(value, yaml.MappingNode):
        yield from ((name.start_mark, name.value, each) for name, each in value.value)
    elif isinstance(value, yaml.SequenceNode) and value.value:
        for each in value.value:
            yield from _items(each if isinstance(each, yaml.ScalarNode) else key, each)
    else:
        yield key.start_mark, key.value if isinstance(value, yaml.SequenceNode) else None, value


def _plain(node: Any) -> Any:
    return SafeConstructor().construct_document(node)
