"""Topic selectors."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import pytest

from rmqio.errors import LocalError
from rmqio.transforms.writing.elements import (
    ConstantTopic,
    Destination,
    TopicFromCallable,
    TopicFromFields,
    TopicSelector,
    as_selector,
)


class Order(NamedTuple):
    kind: str | None
    colour: str | None = None


@dataclass
class Plain:
    kind: str


def by_length(element: str) -> str:
    return "long" if len(element) > 3 else "short"


FIELDS = TopicFromFields("kind", "colour", default_topic="rest", default_tags="grey")


@pytest.mark.parametrize(
    ("selector", "element", "expected"),
    [
        (ConstantTopic("t"), object(), ("t", None)),
        (ConstantTopic("t", "a"), object(), ("t", "a")),
        (FIELDS, {"kind": "a", "colour": "red"}, ("a", "red")),
        (FIELDS, {"kind": "a"}, ("a", "grey")),
        (FIELDS, {"kind": "", "colour": None}, ("rest", "grey")),
        (FIELDS, Order("a", "red"), ("a", "red")),
        (FIELDS, Order(None), ("rest", "grey")),
        (FIELDS, beam.Row(kind="a", colour="red"), ("a", "red")),
        (FIELDS, Plain("a"), ("a", "grey")),
        (FIELDS, b"no fields", ("rest", "grey")),
        (TopicFromFields(tags_field="colour"), {"colour": "red"}, (None, "red")),
        (TopicFromFields("kind"), {}, (None, None)),
        (TopicFromCallable(by_length), "lengthy", ("long", None)),
        (TopicFromCallable(lambda e: ("t", e)), "tag", ("t", "tag")),
        (TopicFromCallable(lambda e: (None, e)), "tag", (None, "tag")),
        (TopicFromCallable(lambda e: None), "x", (None, None)),
    ],
)
def test_select(selector: TopicSelector, element: Any, expected: tuple[str | None, str | None]) -> None:
    assert selector.select(element) == Destination(*expected)


@pytest.mark.parametrize("chosen", [5, ("t",), ("t", 1), ["t", "a"], ("t", "a", "b")])
def test_callable_that_gives_something_else_is_refused(chosen: Any) -> None:
    with pytest.raises(LocalError, match=r"it must return a topic, \(topic, tag\) or None"):
        TopicFromCallable(lambda _: chosen).select("x")


def test_field_that_is_not_text_is_refused() -> None:
    with pytest.raises(LocalError, match="field 'kind' of the element is 5"):
        TopicFromFields("kind").select({"kind": 5})


def test_as_selector() -> None:
    assert as_selector(None) is None
    assert as_selector(FIELDS) is FIELDS
    assert as_selector(by_length) == TopicFromCallable(by_length)
    with pytest.raises(LocalError, match="selector is 'topic'; it must be a callable"):
        as_selector("topic")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConstantTopic("not legal"),
        lambda: TopicFromFields("kind", default_topic="not legal"),
        lambda: TopicFromFields(default_topic="t"),
    ],
)
def test_bad_configuration_is_refused_when_made(make: Any) -> None:
    with pytest.raises(LocalError, match=r"illegal|names no field"):
        make()


@pytest.mark.parametrize("selector", [ConstantTopic("t"), FIELDS, TopicFromCallable(by_length)])
def test_selectors_are_values_that_pickle(selector: TopicSelector) -> None:
    again = pickle.loads(pickle.dumps(selector))
    assert again == selector
    assert hash(again) == hash(selector)
