"""The nearest name, for messages about one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns "; did you mean ...?", or the known names if none is similar."""
    names = [each for each in known if isinstance(each, str)]
    found = difflib.get_close_matches(name, names, 1)
    if found:
        return f"; did you mean {found[0]}?"
    return f"; there are {', '.join(sorted(names)[:20])}" if names else ""
