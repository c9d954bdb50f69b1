"""Which failed tests may have failed by chance, and run once more, alone.

Some hundred tests wait for processes on a machine that is never quiet, so a deadline of the tests themselves can pass.
Only such a failure is run again, and only if it does not speak of messages that are lost or there twice. If more than a
few tests fail, none is: that is never a matter of a busy machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MOST: Final = 4
"""Tests that run again. If more fail, the change is at fault."""

_BY_CHANCE: Final = re.compile(
    r"^E .*(\bnot (done )?within [\d.]+ s|\bTimeout\b|TimeoutExpired|timed out|did not start|Address already in use"
    r"|never came\b|it does not come true)",
    re.MULTILINE,
)
"""A deadline of a test, a server that did not come up, or a port that was taken meanwhile."""
_WORDS: Final = "lost|losses|doubled|duplicates?|duplicated|twice|missing|skipped|strange|Findings"
_OF_MESSAGES: Final = re.compile(rf"^E (?!.*\bconnection\b).*\b({_WORDS})\b", re.MULTILINE)


def run_again(failed: Mapping[str, str]) -> bool:
    """Returns whether these failures may be those of a busy machine. `failed`: what pytest shows, by the test's id."""
    return (
        0 < len(failed) <= MOST
        and all("::" in test for test in failed)
        and all(_BY_CHANCE.search(text) and not _OF_MESSAGES.search(text) for text in failed.values())
    )
