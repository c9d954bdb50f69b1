"""`MatchRules`, the Beam transform, and what it gives."""

from __future__ import annotations

from rmqio.rules.transform.match_rules import MatchRules, MatchRulesResult
from rmqio.rules.transform.outputs import Match, MatchedMessage

__all__ = ["Match", "MatchRules", "MatchRulesResult", "MatchedMessage"]
