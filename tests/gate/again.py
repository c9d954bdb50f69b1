"""Which failed tests may have failed by chance, and run once more, alone.

Some hundred tests wait for processes on a machine that is never quiet, so a deadline of the tests themselves can pass.
A failure that speaks of messages that are lost or there twice is never run again, nor is a run in which more than a few
tests fail: nothing of these is ever a matter of a busy machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MOST: Final = 4
"""Tests that run again. If more fail, the change is at fault."""

_WORDS: Final = "lost|losses|doubled|duplicates?|duplicated|twice|missing|skipped|strange|Findings"
_OF_MESSAGES: Final = re.compile(rf"^E (?!.*\bconnection\b).*\b({_WORDS})\b", re.MULTILINE)


def run_again(failed: Mapping[str, str]) -> bool:
    """Returns whether these failures may be those of a busy machine. `failed`: what pytest shows, by the test's id."""
    return (
        0 < len(failed) <= MOST
        and all("::" in test for test in failed)
        and not any(_OF_MESSAGES.search(text) for text in failed.values())
    )
