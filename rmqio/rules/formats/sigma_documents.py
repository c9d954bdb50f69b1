"""The YAML documents of Sigma's texts: each with its place, and what pySigma makes of it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import yaml
from sigma.collection import deep_dict_update
from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaConditionError, SigmaError
from sigma.filters import SigmaFilter
from sigma.rule import SigmaDetectionItem, SigmaRule
from sigma.rule.base import SigmaYAMLLoader, check_alias_expansion
from yaml.constructor import SafeConstructor

from rmqio.near_names import did_you_mean
from rmqio.rules.errors import Problem
from rmqio.rules.formats import sigma_features, sigma_sizes, yaml_text
from rmqio.rules.formats.base import RuleText, level_refused, line_with_caret
from rmqio.rules.formats.sigma_policy import POLICY
from rmqio.rules.ir import Place

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
    if (texts := sigma_sizes.texts_of(data.get("detection") or data.get("filter"))) > sigma_sizes.MOST_TEXTS:
        many = f"its values stand for {texts:,} texts; one rule can have {sigma_sizes.MOST_TEXTS:,}: split it"
        problems.append(given.problem(many))
        return
    key = "filter" if kind == "filter" else "detection"
    try:
        if key in data:
            data = {**data, key: sigma_features.understood(data[key], is_filter=kind == "filter")}
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
        return f"there is no modifier {unknown[1]!r}{did_you_mean(unknown[1], sigma_features.MODIFIERS)}"
    if unknown := _UNKNOWN_LEVEL.fullmatch(text):
        return level_refused(unknown[1])
    if wrong := _INCOMPATIBLE.fullmatch(text):
        what = "what is before it" if wrong[2].startswith(("Sigma", "<")) else repr(wrong[2])
        return f"the modifier {sigma_features.name_of(wrong[1])} cannot be applied to {what}"
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
                    made = SigmaDetectionItem.from_mapping(None, sigma_features.keyword_of(name.value, _plain(item)))
                else:
                    made = SigmaDetectionItem.from_mapping(*sigma_features.item_of(key, _plain(item)), policy=POLICY)
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
