"""Rules: `MatchRules` finds the rules that each message matches, thousands of them, in any Beam pipeline.

The formats make one representation (`ir`), which one plan compiles and runs. The names resolve on first use: rules can
be read, checked and explained without Beam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqio.loading import lazy_names

if TYPE_CHECKING:
    from rmqio.rules.alerts import alert_id, alert_message
    from rmqio.rules.arguments import add_arguments, check_arguments, from_arguments
    from rmqio.rules.correlation import Correlate, Correlated
    from rmqio.rules.ir import And, Atom, CorrelationKind, CorrelationRule, Kind, Not, Or, Rule
    from rmqio.rules.ruleset import RuleSet
    from rmqio.rules.transform import AlertMessages, Match, MatchedMessage, MatchRules

__all__ = [
    "AlertMessages",
    "And",
    "Atom",
    "Correlate",
    "Correlated",
    "CorrelationKind",
    "CorrelationRule",
    "Kind",
    "Match",
    "MatchRules",
    "MatchedMessage",
    "Not",
    "Or",
    "Rule",
    "RuleSet",
    "add_arguments",
    "alert_id",
    "alert_message",
    "check_arguments",
    "from_arguments",
]
_HOMES: Final = dict.fromkeys(__all__, "ir") | {
    "AlertMessages": "transform",
    "Correlate": "correlation",
    "Correlated": "correlation",
    "Match": "transform",
    "MatchRules": "transform",
    "MatchedMessage": "transform",
    "RuleSet": "ruleset",
    "add_arguments": "arguments",
    "alert_id": "alerts",
    "alert_message": "alerts",
    "check_arguments": "arguments",
    "from_arguments": "arguments",
}

__getattr__ = lazy_names(
    __name__, _HOMES, packages=("msgspec",), needs="rules need the package {}: pip install 'rmqio[rules]'"
)
