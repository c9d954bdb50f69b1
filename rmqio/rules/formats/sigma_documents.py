"""The YAML documents of Sigma's texts: each with its place, and what pySigma makes of it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
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
_UNKNOWN_MODIFIER: Final = re.compile(r"Unknown modifier '(.*)'")
_UNKNOWN_LEVEL: Final = re.compile(r"'(.*)' is not a valid Sigma rule level")
_INCOMPATIBLE: Final = re.compile(r"Modifier (\w+) incompatible to value type of '(.*)'")
_ACTIONS: Final = ("global", "reset", "repeat")


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a text. `rule` is pySigma's value of its kind; `node` is the YAML, which knows places."""

    text: RuleText
    node: Any
    data: dict[str, Any]
    kind: Kind
    rule: Any

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

    def problem(self, reason: str, error: Exception | None = None) -> Problem:
        """Returns the problem of this rule, at the key that the error is about."""
        mark = _mark(self.node, error) if error is not None else self.node.start_mark
        shown = line_with_caret(self.text.text, mark.line + 1, mark.column + 1)
        return Problem(self.text.name, mark.line + 1, self.id, reason, shown)


def documents(text: RuleText, problems: list[Problem]) -> Iterator[Document]:
    """Yields the documents that are rules, correlations or filters; adds what is wrong with others to `problems`."""
    template: dict[str, Any] = {}
    before: dict[str, Any] = {}
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
            template = data
            continue
        if action == "reset":
            template = {}
            continue
        if action == "repeat":
            data = deep_dict_update(copy.deepcopy(before), data)
        elif action is not None:
            problems.append(_at(text, node, f"action: {action!r} is not one of {', '.join(_ACTIONS)}"))
            continue
        elif "correlation" not in data and "filter" not in data:
            data = deep_dict_update(data, copy.deepcopy(template))
        before = data
        yield from _of_data(text, node, data, problems)


def _of_data(text: RuleText, node: Any, data: dict[str, Any], problems: list[Problem]) -> Iterator[Document]:
    kind: Kind = "correlation" if "correlation" in data else "filter" if "filter" in data else "rule"
    classes: dict[Kind, Any] = {"rule": SigmaRule, "correlation": SigmaCorrelationRule, "filter": SigmaFilter}
    given = Document(text, node, data, kind, None)
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
        yield Document(text, node, data, kind, rule)


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


def _mark(node: Any, error: Exception) -> Any:
    """The place of the key that an error is about: pySigma's errors have none, so that each item is tried alone."""
    detection = _value(node, "detection") or _value(node, "filter")
    if detection is not None:
        if isinstance(error, SigmaConditionError):
            condition = _value(detection, "condition")
            return (condition or detection).start_mark
        for key, value in _items(detection):
            try:
                SigmaDetectionItem.from_mapping(*sigma_features.item_of(key.value, _plain(value)), policy=POLICY)
            except (SigmaError, ValueError, TypeError) as wrong:
                if str(wrong) == str(error):
                    return key.start_mark
    for name in ("correlation", "logsource", "level", "status", "date", "tags", "id"):
        if name in str(error).lower() and (found := _value(node, name)) is not None:
            return found.start_mark
    return node.start_mark


def _value(node: Any, name: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)


def _items(node: Any) -> Iterator[tuple[Any, Any]]:
    todo = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, yaml.SequenceNode):
            todo += reversed(one.value)
        elif isinstance(one, yaml.MappingNode):
            for key, value in one.value:
                if isinstance(value, (yaml.MappingNode, yaml.SequenceNode)):
                    todo.append(value)
                yield key, value


def _plain(node: Any) -> Any:
    return SafeConstructor().construct_document(node)
