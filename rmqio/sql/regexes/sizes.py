"""The size of a regular expression: the characters that it would have if repeats were written out.

The engine writes repeats out when it compiles, `(?:abc){1000}` a thousand times: such an expression of a few characters
can take minutes and all of the memory.
"""

from __future__ import annotations

import re
from typing import Final

LARGEST: Final = 100_000
"""The largest size that is compiled: a second or two, and some ten megabytes."""
_PIECE: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*+\]?|(\()|(\))|\{([0-9]+)(?:,[0-9]*)?\}|.", re.DOTALL
)
_ENOUGH: Final = 1 << 40


def size_of(expression: str) -> int:
    """Returns the size, about: of what is no regular expression, too. Very large ones have the same one."""
    sizes, last = [0], 0  # of the groups that are open, and of what a repeat stands behind
    for found in _PIECE.finditer(expression):
        opens, closes, least = found.groups()
        if opens:
            sizes.append(0)
            last = 0
        elif closes and len(sizes) > 1:
            last = sizes.pop() + 1
            sizes[-1] += last
        elif least:  # what is beyond the least number is not written out
            times = max(int(least[:12]), 1)
            sizes[-1] = min(sizes[-1] + last * (times - 1), _ENOUGH)
            last = min(last * times, _ENOUGH)
        else:
            last = len(found[0])
            sizes[-1] += last
    return min(sum(sizes), _ENOUGH)
