"""Names of topics and groups, as a broker checks them."""

from __future__ import annotations

import pytest

from rmqio.errors import LocalError
from rmqio.topics import validate_group, validate_topic


@pytest.mark.parametrize("name", ["a", "A-b_9%|", "x" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250, "%RETRY%g+t"])
def test_legal_topics(name: str) -> None:
    validate_topic(name)


@pytest.mark.parametrize(
    "name", ["", "x" * 128, "a b", "a\n", "ä", "a.b", "a/b", "%RETRY%" + "g" * 249, "%RETRY%a b", "g+t", "*"]
)
def test_illegal_topics(name: str) -> None:
    with pytest.raises(LocalError, match="topic name"):
        validate_topic(name)


@pytest.mark.parametrize("name", ["a", "g" * 120])
def test_legal_groups(name: str) -> None:
    validate_group(name)


@pytest.mark.parametrize("name", ["", "g" * 121, "a b", "a\n", "ü"])
def test_illegal_groups(name: str) -> None:
    with pytest.raises(LocalError, match="group name"):
        validate_group(name)
