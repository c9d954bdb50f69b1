"""Statements whose inputs do not end, planned without a runner."""

from __future__ import annotations

from rmqio.sql.analysis.sinks import check_sink
from rmqio.sql.errors import Refusal
from rmqio.sql.planning.checks import ends_by_itself, require_ends
from rmqio.sql.planning.plan import Sink
from rmqio.sql.scripts.script import Script


def run_endless(text: str, file: str = "") -> None:
    """Runs a script and plans its statements. Raises `SqlError` also for what needs inputs that end."""
    script = Script()
    script.run(text, file)
    try:
        for plan in (*script.sinks, *script.explained):
            if isinstance(plan, Sink):
                check_sink(plan, ends_by_itself)
            require_ends(plan, ends_by_itself)
    except Refusal as refusal:
        raise script.texts.error(refusal.message, refusal.span) from None
