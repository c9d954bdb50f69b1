"""How a regular expression is run: by Vectorscan, by Vectorscan as a filter before RE2, or by RE2. None backtracks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rmqio.errors import quoted
from rmqio.rules.match.atoms import BadAtom

# The text of regular expressions, token by token: what RE2 needs to mean what Perl and Python do, and larger nets.
#
# RE2 has checked the expressions before they come here.

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


ALLOWEMPTY: Final = 16  # HS_FLAG_*, which are part of the format of a compiled set
CASELESS: Final = 1
DOTALL: Final = 2
MULTILINE: Final = 4
SINGLEMATCH: Final = 8
UTF8: Final = 32
PREFILTER: Final = 128
_NEEDS_EMPTY: Final = "ALLOWEMPTY"
_OF_THE_END: Final = re.compile(r"\\[zZ]|\(\?[a-zA-Z]*-[a-zA-Z]*m")
"""Parts of an expression that a newline behind the text would mislead."""
_PROPERTY: Final = re.compile(r"\\[pP]")
_CLASS: Final = re.compile(r"\\[wW]|\[:")
_BOUNDARY: Final = re.compile(r"\\b")
_IGNORES_CASE: Final = re.compile(r"\(\?[a-zA-Z]*i")
_NEWLY_CASED: Final = re.compile(
    "[\u0250-\u02af\u10a0-\u10ff\u13a0-\u13ff\u1c80-\u1cbf\u1d00-\u1dbf\u2c00-\u2dff\ua640-\ua7ff\uab30-\uabbf"
    r"\ufb00-\ufb06\U00010000-\U0001ffff]|-[\u0250-\U0010ffff]|\\x\{"
)
"""Characters with case, some of which have it for RE2 only, and what can stand for them."""
_FOLDED_TO_ASCII: Final = re.compile("[\u017f\u212a]")
_TO_ASCII: Final = str.maketrans({"\u017f": "s", "\u212a": "k"})
_OF_BYTES: Final = re.compile(
    r"(?:[^\x80-\U0010ffff.\\\[]|\.[*+]|\\(?:[^\w\x80-\U0010ffff]|[Abdfnrstvw])"
    r"|\[(?![\^\]])(?:[^\x80-\U0010ffff\[\]\\]|\\(?:[^\w\x80-\U0010ffff]|[dfnrstvw]))+\])*"
)
"""Expressions that find as much in the bytes of a text as in its characters: ASCII, and no single character of any kind
such as `.`, `[^a]` and `\\S`, but `.*` and `.+`."""


class RegexPlan(NamedTuple):
    """How a regular expression is run: RE2 decides, on what Vectorscan finds or, without it, on each value."""

    scan_flags: int | None
    """Flags for Vectorscan, with a newline behind the text; None: it does not look for the expression."""
    overlooks_folded: bool = False
    """Whether Vectorscan overlooks texts for which `has_folded` is true."""
    finds_ascii: bool = False
    """Whether it finds such texts only after `to_ascii`."""
    scanned: str = ""
    """What Vectorscan looks for: the expression, or one that finds more."""


def has_folded(text: str) -> bool:
    """Whether a text has a character beyond ASCII that is one of ASCII without case: the long s, the sign of Kelvin."""
    return _FOLDED_TO_ASCII.search(text) is not None


def to_ascii(text: str) -> str:
    """The text with the letters of `has_folded` as those of ASCII."""
    return text.translate(_TO_ASCII)


def has_vectorscan() -> bool:
    """Whether the wheel is installed."""
    try:
        import hyperscan  # noqa: F401
    except ImportError:
        return False
    return True


@lru_cache(65_536)
def plan_of(pattern: str, flags: str, max_bytes: int, *, with_vectorscan: bool) -> RegexPlan:
    """Returns how to run an expression. Raises `BadAtom`."""
    failure = _re2_failure(pattern, flags)
    if failure is not None:
        raise BadAtom(f"the regular expression {quoted(pattern[:80])} cannot run without backtracking: {failure}")
    if not with_vectorscan or _OF_THE_END.search(pattern) or _PROPERTY.search(pattern):
        return RegexPlan(None)  # the newest characters are letters for RE2 only
    ignores_case = "i" in flags or _IGNORES_CASE.search(pattern) is not None
    if ignores_case and _NEWLY_CASED.search(pattern):
        return RegexPlan(None)
    # Since RE2 decides, a scan may find too much. So a dot finds newlines, and letters without case are those of ASCII
    # where they can be: many `a.*b.*c` take several times as long to compile with lines, and nine times with Unicode.
    # Repeats are relaxed, because `a.{100,500}b` takes seconds.
    scanned = relaxed(pattern)
    is_of_bytes = _OF_BYTES.fullmatch(pattern) is not None
    # `to_ascii` makes letters, beside which there can be fewer boundaries.
    overlooks = ignores_case and (_BOUNDARY if is_of_bytes else _CLASS).search(pattern) is not None
    number = SINGLEMATCH | MULTILINE | DOTALL
    if not is_of_bytes:
        number |= UTF8
    if "i" in flags:
        number |= CASELESS
    for scan_flags in (number, number | PREFILTER):
        taken, failure = _compiled(scanned, scan_flags, max_bytes)
        if failure and _NEEDS_EMPTY in failure:
            scan_flags |= ALLOWEMPTY
            taken, failure = _compiled(scanned, scan_flags, max_bytes)
        if taken:
            return RegexPlan(scan_flags, overlooks, is_of_bytes and ignores_case and not overlooks, scanned)
    return RegexPlan(None)


@lru_cache(4_096)
def re2_of(pattern: str, flags: str) -> Any:
    """The expression, compiled by RE2."""
    import re2

    options = _options(flags)
    by_line = "m" in flags
    text, of_inner, has_line_start = written(pattern, by_line=by_line, dot_all="s" in flags, finds=_is_all)
    made = re2.compile(f"(?m:{text})" if by_line else text, options)
    if of_inner is not None:
        return _Followed(made, re2.compile(of_inner, options))
    return _ByLine(made) if has_line_start else made


def _is_all(expression: str, text: str) -> bool:
    import re2

    try:
        return re2.compile(expression, _options("")).fullmatch(text) is not None
    except re2.error:  # a part that is none by itself
        return False


def _options(flags: str) -> Any:
    import re2  # type: ignore[import-not-found,import-untyped,unused-ignore]

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = "i" not in flags
    options.dot_nl = "s" in flags
    return options


class _ByLine:
    """An expression with a `^` of lines: Vectorscan knows no line behind a newline that ends the text."""

    def __init__(self, expression: Any) -> None:
        self._expression = expression

    def search(self, text: str) -> Any:
        found = self._expression.search(text)
        return None if found is not None and text.endswith("\n") and found.start() == len(text) else found


class _Followed:
    """An expression with a `$` behind which more can follow. RE2 does not look ahead, but at the ends of lines."""

    def __init__(self, expression: Any, of_inner: Any) -> None:
        self._expression = expression
        self._of_inner = of_inner

    def search(self, text: str) -> Any:
        if not text.endswith("\n"):
            return self._expression.search(text)
        inner = text[:-1].replace(INNER_NEWLINE, "\ufffe").replace("\n", INNER_NEWLINE)
        return self._of_inner.search(f"{inner}\n")


def _compiled(pattern: str, flags: int, max_bytes: int) -> tuple[bool, str]:
    """Whether Vectorscan takes an expression; if not, why."""
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(expressions=[pattern.encode()], ids=[0], flags=[flags])
    except hyperscan.error as error:
        return False, str(error)
    size = database.size()
    return size <= max_bytes, "" if size <= max_bytes else f"{size:,} bytes compiled; max_regex_bytes is {max_bytes:,}"


def _re2_failure(pattern: str, flags: str) -> str | None:
    """Why RE2 does not take an expression; None: it does."""
    try:
        import re2
    except ImportError:
        return "google-re2 is not installed; install rmqio[rules]"
    try:
        re2.compile(pattern, _options(flags))  # as it is given
        re2_of(pattern, flags)
    except re2.error as error:
        text = error.args[0] if error.args else error
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return None
