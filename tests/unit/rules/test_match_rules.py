"""`MatchRules` in a pipeline: elements, outputs, errors, and rules that change."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.error_handling import ErrorHandler

pytest.importorskip("msgspec", reason="rules need the extra 'rules'")

from rmqio import LocalError, Message, ReadFromRocketMQ, StartFrom, StopAt
from rmqio.batches import Batch
from rmqio.model import MessageQueue, Record
from rmqio.rules.errors import Problem, RuleError
from rmqio.rules.ir import Atom, Kind, Rule
from rmqio.rules.limits import Limits
from rmqio.rules.live import LiveRules
from rmqio.rules.transform import Match, MatchedMessage, MatchRules
from rmqio.rules.transform.outputs import MatchCoder, MatchedMessageCoder
from rmqio.runners import options
from rmqio.testing import FakeBroker
from rmqio.testing import records as make_records

LOW = Rule("low", Atom("a", Kind.GREATER, 1), "Low", "low", ("t1",))
HIGH = Rule("high", Atom("a", Kind.GREATER, 2), "High", "high")
ALSO = Rule("also", Atom("a", Kind.GREATER, 2), "Also", "high")


@dataclass(frozen=True)
class Fixed:
    """A source that never changes."""

    rules: tuple[Rule, ...] = (LOW, HIGH, ALSO)

    def load(self) -> tuple[Rule, ...]:
        return self.rules

    def signature(self) -> str:
        return "1"
