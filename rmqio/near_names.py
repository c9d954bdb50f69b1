"""The known name that is closest to a wrong one, for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(wrong: str, names: Iterable[str]) -> str:
    """Return advice to append to a message; empty if no name is close."""
    found = nearest(wrong, names)
    return f"; did you mean {found}?" if found else ""


def nearest(wrong: str, names: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the name that is closest to a wrong one, if any is close; `cutoff`: how close, up to 1 for the same."""
    return next(iter(difflib.get_close_matches(wrong, sorted(names), n=1, cutoff=cutoff)), None)
