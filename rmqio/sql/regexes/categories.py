r"""Classes of characters by their category in Unicode, such as `\p{L}` and `\p{Lu}`: `re` knows none of them."""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache, lru_cache
from itertools import groupby


@lru_cache(maxsize=100)
def members(name: str, *, is_negated: bool = False) -> str | None:
    """Returns the characters as they stand in brackets; None: there is no such category.

    Args:
      name: of a category, or of several by their first letter, with or without `Is` before it, as in Java.
      is_negated: those of all others.
    """
    name = name.removeprefix("Is")
    known = _ranges()
    chosen = {each for each in known if name in (each, each[0])}
    if not chosen:
        return None
    return "".join(known[each] for each in known if (each in chosen) != is_negated)


@cache
def _ranges() -> dict[str, str]:
    """The characters of each category."""
    found: dict[str, list[str]] = {}
    start = 0
    for name, run in groupby(map(unicodedata.category, map(chr, range(sys.maxunicode + 1)))):
        end = start + sum(1 for _ in run)
        ends = dict.fromkeys((start, end - 1))
        found.setdefault(name, []).append("-".join(re.escape(chr(each)) for each in ends))
        start = end
    return {name: "".join(ranges) for name, ranges in found.items()}
