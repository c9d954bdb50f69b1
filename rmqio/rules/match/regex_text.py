"""The text of regular expressions, token by token: what RE2 needs to mean what Perl and Python do, and larger nets.

RE2 has checked the expressions before they come here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""
    \\Q.*?(?:\\E|\Z)                                # text in which no character has a meaning
    | \\[pPx]\{[^}]*\} | \\[pP][A-Z] | \\x[0-9a-fA-F]{2} | \\[0-7]{1,3} | \\.
    | \[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]    # a class; a bracket that is its first member does not end it
    | \(\?(?:P?<[^>]*>|[a-zA-Z]*(?:-[a-zA-Z]*)?[:)]) | \( | \)
    | \{(?:0|[1-9][0-9]{0,8})(?:,(?:0|[1-9][0-9]{0,8})?)?\}  # others are text to RE2: zeros in front, more digits
    | .""",
    re.DOTALL | re.VERBOSE,
)
_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_REPEAT: Final = re.compile(r"\{([0-9]{1,9})(,?)([0-9]{0,9})\}")
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_SPACE: Final = {r"\s": r"[\x20\t-\r]", r"\S": r"[^\x20\t-\r]"}
_SPACE_IN_CLASS: Final = {r"\s": r"\x20\t-\r", r"\S": r"\x00-\x08\x0e-\x1f\x21-\x{10ffff}"}
"""White space with the vertical tab, which RE2 leaves out."""
INNER_NEWLINE: Final = "\uffff"
"""It stands for a newline that is not the last character of a text. It is no character of Unicode."""
_MOST_PARTS: Final = 256
_LARGEST_REPEATS: Final = (15, 4, 1)


class Written(NamedTuple):
    """An expression for RE2, where each `$` is what it is in Perl and Python: also before a newline that is the last.

    Attributes:
      text: the expression, whose `$` take that newline.
      of_inner: if more can follow a `$`, the expression for texts that end with a newline and whose other newlines are
        `INNER_NEWLINE`: there, the `$` of lines is what `$` is.
      has_line_start: whether it has a `^` of lines.
    """

    text: str
    of_inner: str | None
    has_line_start: bool


class _Group:
    """A group that is open: whether a `$` is before it, before this place of it, and in it."""

    def __init__(self, at_start: bool) -> None:
        self.at_start = self.here = at_start
        self.has_end = False


def written(pattern: str, *, by_line: bool, dot_all: bool, finds: Callable[[str, str], bool]) -> Written:
    """Returns an expression for RE2.

    Args:
      by_line, dot_all: whether `m` and `s` hold at the beginning. Where `m` does, `$` is left as it is.
      finds: whether an expression is all of a text.
    """
    made: list[tuple[str, bool]] = []
    states = [(by_line, dot_all)]
    groups = [_Group(False)]
    has_line_start = has_line_end = is_followed = False
    for each in _tokens(pattern):
        of_lines, of_all = states[-1]
        group = groups[-1]
        flags = _FLAGS.fullmatch(each)
        if flags is not None and flags[3] == ")":
            states[-1] = _with_flags(states[-1], flags)
        elif _opens(each):
            states.append(states[-1] if flags is None else _with_flags(states[-1], flags))
            groups.append(_Group(group.here))
        elif each == ")" and len(groups) > 1:
            states.pop()
            if groups.pop().has_end:
                groups[-1].here = groups[-1].has_end = True
        elif each == "|":
            group.here = group.at_start
        elif each == "$" and not of_lines:
            group.here = group.has_end = True
            each = r"\n?\z"
        elif not _repeats(each):
            is_followed = is_followed or group.here
            has_line_start = has_line_start or (each == "^" and of_lines)
            has_line_end = has_line_end or each == "$"
        made.append((_spaced(each), of_all))
    inner = None
    if is_followed and not has_line_start and not has_line_end:
        inner = "".join(_of_inner(each, of_all, finds) for each, of_all in made)
    return Written("".join(each for each, _ in made), inner, has_line_start)


def size_of(pattern: str) -> int:
    """Returns how many characters an expression has, with repeats written out, and a class as one."""
    sizes, last = [0], 0
    for each in _tokens(pattern):
        repeat = _REPEAT.fullmatch(each)
        if _opens(each):
            sizes.append(0)
        elif each == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif repeat is not None:
            count = max(1, int(repeat[3] or repeat[1]))
            sizes[-1] += last * (count - 1)
            last *= count
        elif not _repeats(each) and each != "|":
            last = len(each) if each.startswith(r"\Q") else 1
            sizes[-1] += last
    return sum(sizes)


def relaxed(pattern: str) -> str:
    """Returns an expression that finds no less, and takes less to compile: of many repeats, it wants a few or more."""
    for largest in _LARGEST_REPEATS:
        made = "".join(_relaxed(each, largest) for each in _tokens(pattern))
        if size_of(made) <= _MOST_PARTS:
            break
    return made


def _tokens(pattern: str) -> Iterator[str]:
    return (each[0] for each in _TOKEN.finditer(pattern))


def _opens(token: str) -> bool:
    return token[0] == "(" and token[-1] != ")"


def _repeats(token: str) -> bool:
    return token in ("*", "+", "?") or _REPEAT.fullmatch(token) is not None


def _relaxed(token: str, largest: int) -> str:
    if token == "{":
        return r"\{"  # Vectorscan takes the repeats that RE2 does not
    repeat = _REPEAT.fullmatch(token)
    if repeat is None or int(repeat[3] or repeat[1]) <= largest:
        return token
    return f"{{{min(int(repeat[1]), largest)},}}"


def _spaced(token: str) -> str:
    if token[0] == "[" and len(token) > 1:
        return _ESCAPE.sub(lambda found: _SPACE_IN_CLASS.get(found[0], found[0]), token)
    return _SPACE.get(token, token)


def _of_inner(token: str, dot_all: bool, finds: Callable[[str, str], bool]) -> str:
    """The token, so that it takes `INNER_NEWLINE` where it takes a newline."""
    if token == r"\n?\z":
        return "(?m:$)"
    if token == ".":
        return "." if dot_all else rf"[^\n{INNER_NEWLINE}]"
    if token.startswith(r"\Q"):
        return token.replace("\n", rf"\E[\n{INNER_NEWLINE}]\Q")
    if token != "\n" and token[0] not in "\\[":
        return token
    takes, takes_inner = finds(token, "\n"), finds(token, INNER_NEWLINE)
    if takes and not takes_inner:
        return f"(?:{token}|{INNER_NEWLINE})"
    return f"{token[:-1]}{INNER_NEWLINE}]" if takes_inner and not takes and token[:2] == "[^" else token


def _with_flags(state: tuple[bool, bool], flags: re.Match[str]) -> tuple[bool, bool]:
    on, off = flags[1], flags[2] or ""
    of_lines, of_all = ((name in on or (was and name not in off)) for name, was in zip("ms", state, strict=True))
    return of_lines, of_all
