"""Regular expressions with a time limit.

`re` has none. `regex` has one, but takes two to four times as long for what both do at once. So `re` matches the texts
for which it surely takes few steps, and `regex` the others. Without the package, `re` matches all.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import operator
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar

from rmqio.errors import LocalError
from rmqio.sql.values import ValueFailure, shown

# An upper bound on the steps that `re` takes for a text, by the tree of the expression.
#
# `re` tries, one after another, all ways in which a repeat can match, if what follows does not. A repeat has one way
# if the characters that can follow it are none of its own, as in `\w+ `, or if nothing follows. All other repeats
# multiply: `a*a*b` takes the square of the length, and repeats in such a repeat, as in `(a+)+b`, an exponential
# number.
#
# The bound is about the number of positions of the text, and not exact: what matters is never to be far below.

_constants: Final[Any] = importlib.import_module("re._constants")  # no public module has the tree
_Tree = Iterable[tuple[Any, Any]]

_LATIN: Final = 256
_OTHER: Final = 1 << _LATIN
_ALL_CHARACTERS: Final = (_OTHER << 1) - 1
_END_OF_TEXT: Final = _OTHER << 1
_SUCCESS: Final = _OTHER << 2
"""Nothing follows: the whole expression matches here."""
_ANYTHING: Final = _ALL_CHARACTERS | _END_OF_TEXT
_END_OF_LINE: Final = _END_OF_TEXT | 1 << ord("\n")
_CATEGORIES: Final = {
    _constants.CATEGORY_DIGIT: r"\d", _constants.CATEGORY_NOT_DIGIT: r"\D", _constants.CATEGORY_SPACE: r"\s",
    _constants.CATEGORY_NOT_SPACE: r"\S", _constants.CATEGORY_WORD: r"\w", _constants.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_REPEATS: Final = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_ONE_CHARACTER: Final = (
    _constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN, _constants.RANGE, _constants.CATEGORY,
)  # fmt: skip
_ENOUGH: Final = 1e12
_HIGHEST: Final = 20
_MANY: Final = 20
"""A repeat of more characters counts as one without a limit, if it has one way. `re` takes about a step for as many."""


def _mask(characters: Iterable[int]) -> int:
    found = 0
    for each in characters:
        found |= 1 << min(each, _LATIN)
    return found


def _category(text: str) -> int:
    matches = re.compile(text, re.ASCII).match
    latin = _mask(each for each in range(_LATIN) if matches(chr(each)))
    return latin | _OTHER if text[1].isupper() else latin


_OF_CATEGORY: Final = {code: _category(text) for code, text in _CATEGORIES.items()}


class Ways(NamedTuple):
    """In how many ways a part can match at one place of a text of `n` characters: `factor * n ** degree`.

    Attributes:
      walks: whether it has a repeat without a limit that has one way, and takes as many steps as it is long.
      wastes: whether it can match without what such a repeat has walked over, as in `(?:[^;]*;|)` or a lookahead.
      length: how many characters it has at most, without repeats that have no limit.
    """

    factor: float
    degree: float
    walks: bool = False
    wastes: bool = False
    length: float = 1

    def times(self, other: Ways) -> Ways:
        """The ways of two parts, one after the other."""
        factor, length = min(self.factor * other.factor, _ENOUGH), min(self.length + other.length, _ENOUGH)
        walks, wastes = self.walks or other.walks, self.wastes or other.wastes
        return Ways(factor, self.degree + other.degree, walks, wastes, length)

    def beside(self, other: Ways) -> Ways:
        """The ways of two parts, one of which matches."""
        factor, length = min(self.factor + other.factor, _ENOUGH), max(self.length, other.length)
        walks = self.walks or other.walks
        return Ways(factor, max(self.degree, other.degree), walks, walks, length)

    def to_the(self, times: int) -> Ways:
        """The ways of a part that is repeated."""
        length = min(self.length * times, _ENOUGH)
        if self.factor == 1 and not self.degree:
            return self._replace(length=length)
        factor = self.factor**times if times * math.log(self.factor) < math.log(_ENOUGH) else _ENOUGH
        return self._replace(factor=factor, degree=self.degree * times, length=length)


_ONE: Final = Ways(1, 0)
_EMPTY: Final = Ways(1, 0, length=0)
_ENDLESS: Final = Ways(1, math.inf, walks=True)


class Steps(NamedTuple):
    """The steps for a text of `n` characters: at most about `factor * n ** degree`."""

    factor: float
    degree: float

    def longest(self, steps: float) -> int:
        """Returns the length of the longest text that takes about so many steps at most."""
        if self.degree > _HIGHEST or self.factor >= steps:
            return 0
        # places are in order, so that d of them among n are about n ** d / d!
        return int((steps * math.factorial(int(self.degree)) / self.factor) ** (1 / self.degree))


def steps_of(tree: Any, *, to_end: bool = False) -> Steps:
    """Returns the steps of an expression, as `re` has parsed it.

    Args:
      to_end: the expression has to match until the end of the text, from its beginning; otherwise it is searched.
    """
    flags = tree.state.flags
    ways, _ = _Walk(bool(flags & re.IGNORECASE), bool(flags & re.DOTALL)).of(tree, _END_OF_TEXT if to_end else _SUCCESS)
    first = tree[0] if len(tree) else None
    at_start = to_end or (first == (_constants.AT, _constants.AT_BEGINNING) and not flags & re.MULTILINE)
    at_start = at_start or first == (_constants.AT, _constants.AT_BEGINNING_STRING)
    degree = (not at_start) + max(ways.degree, 0) + ways.walks
    return Steps(ways.factor * max(ways.length / _MANY, 1), max(degree, 1))


class _Walk:
    """Walks through a tree from its end, with the characters that can follow: a bit for each."""

    def __init__(self, ignores_case: bool, has_all: bool) -> None:
        self._ignores_case = ignores_case
        self._has_all = has_all
        self._is_exact = True
        """Whether the flags of the expression are those of this part."""

    def of(self, tree: _Tree, after: int) -> tuple[Ways, int]:
        """Returns the ways, and the characters that can come first: of what follows if the part can be empty."""
        ways = _EMPTY
        for code, argument in reversed(list(tree)):
            found, after = self._item(code, argument, after)
            ways = ways.times(found)
        return ways, after

    def _item(self, code: Any, argument: Any, after: int) -> tuple[Ways, int]:
        if code in _ONE_CHARACTER:
            return _ONE, self._characters(code, argument)
        if code in _REPEATS:
            ways, first = self._repeat(argument, after)
            # Groups in it are not always the same for the two engines, so that one of them has to match all texts.
            return (_ENDLESS if code is _constants.POSSESSIVE_REPEAT else ways), first
        if code is _constants.BRANCH:
            return self._branch(argument[1], after)
        if code is _constants.SUBPATTERN:
            _, added, removed, inner = argument
            before, self._is_exact = self._is_exact, self._is_exact and not added and not removed
            found = self.of(inner, after)
            self._is_exact = before
            return found
        if code is _constants.ATOMIC_GROUP:
            return self.of(argument, after)
        if code is _constants.AT:
            at_end = argument in (_constants.AT_END, _constants.AT_END_STRING)
            return _EMPTY, _END_OF_LINE if at_end else _ANYTHING
        if code in (_constants.ASSERT, _constants.ASSERT_NOT):
            ways, _ = self.of(argument[1], _SUCCESS)
            return ways._replace(wastes=ways.walks), _ANYTHING
        if code is _constants.GROUPREF_EXISTS:
            _, yes, no = argument
            ways = self.of(yes, after)[0]
            return (ways.beside(self.of(no, after)[0]) if no else ways), _ANYTHING
        if code is _constants.FAILURE:
            return _ONE, 0
        return Ways(1, 1), _ANYTHING  # GROUPREF: it compares as many characters as the group has

    def _repeat(self, argument: Any, after: int) -> tuple[Ways, int]:
        least, most, body = argument
        if not most:
            return _EMPTY, after
        inner, can_be_empty = self._first(body)
        inner |= after * can_be_empty
        following = inner | after if most > 1 else after
        if least > 1:  # only the last of these can be the end
            following &= ~_SUCCESS
        ways, first = self.of(body, following)
        if not least:
            first |= after
        is_endless = most is _constants.MAXREPEAT
        own = _EMPTY._replace(walks=most > _MANY)
        if least < most and not after & _SUCCESS and inner & after:
            own = own._replace(factor=min(most - least + 1, _ENOUGH)) if not is_endless else Ways(1, 1, length=0)
        if is_endless and (ways.factor > 1 or ways.degree or ways.wastes):
            return _ENDLESS, first
        if not is_endless:
            ways = ways.to_the(most)
            if ways.wastes:
                ways = ways._replace(factor=min(ways.factor * most, _ENOUGH))
        return ways.times(own)._replace(wastes=ways.wastes or (ways.walks and least < most)), first

    def _branch(self, branches: list[Any], after: int) -> tuple[Ways, int]:
        found = [self.of(each, after) for each in branches]
        first, is_clear = 0, True
        for _, each in found:
            is_clear = is_clear and not first & each
            first |= each
        ways = found[0][0]
        for other, _ in found[1:]:
            ways = ways.beside(other)
        if is_clear:  # the next character says which
            ways = ways._replace(factor=max(each.factor for each, _ in found))
        return ways, first

    def _first(self, tree: _Tree) -> tuple[int, bool]:
        """Returns the characters that a part can begin with, and whether it can be empty."""
        first = 0
        for code, argument in tree:
            if code in _ONE_CHARACTER:
                found, can_be_empty = self._characters(code, argument), False
            elif code in _REPEATS:
                found, can_be_empty = self._first(argument[2])
                can_be_empty = can_be_empty or not argument[0]
            elif code is _constants.SUBPATTERN and not argument[1] and not argument[2]:
                found, can_be_empty = self._first(argument[3])
            elif code is _constants.BRANCH:
                each = [self._first(branch) for branch in argument[1]]
                found, can_be_empty = (
                    functools.reduce(operator.or_, (mask for mask, _ in each)),
                    any(e for _, e in each),
                )
            else:
                return _ANYTHING, False
            first |= found
            if not can_be_empty:
                return first, False
        return first, True

    def _characters(self, code: Any, argument: Any) -> int:
        if not self._is_exact:
            return _ALL_CHARACTERS
        if code is _constants.ANY:
            return _ALL_CHARACTERS if self._has_all else _ALL_CHARACTERS & ~(1 << ord("\n"))
        if code is _constants.NOT_LITERAL:
            return _ALL_CHARACTERS & ~self._folded(_mask([argument])) | _OTHER
        if code is _constants.IN:
            found = 0
            is_negated = False
            for inner, each in argument:
                if inner is _constants.NEGATE:
                    is_negated = True
                else:
                    found |= self._characters(inner, each)
            return _ALL_CHARACTERS & ~found | _OTHER if is_negated else found
        if code is _constants.CATEGORY:
            return _OF_CATEGORY[argument]
        if code is _constants.RANGE:
            least, most = argument
            return self._folded(_mask(range(least, min(most, _LATIN) + 1)) | (_OTHER if most >= _LATIN else 0))
        return self._folded(_mask([argument]))

    def _folded(self, mask: int) -> int:
        if not self._ignores_case:
            return mask
        upper = mask & _UPPER
        lower = mask & _LOWER
        return mask | upper << 32 | lower >> 32


_UPPER: Final = _mask(range(ord("A"), ord("Z") + 1))
_LOWER: Final = _mask(range(ord("a"), ord("z") + 1))


# The size of a regular expression: the characters that it would have if repeats were written out.
#
# The engine writes repeats out when it compiles, `(?:abc){1000}` a thousand times: such an expression of a few
# characters can take minutes and all of the memory.

LARGEST: Final = 100_000
"""The largest size that is compiled: a second or two, and some ten megabytes."""
_PIECE: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*+\]?|(\()|(\))|\{([0-9]+)(?:,[0-9]*)?\}|.", re.DOTALL
)
_SIZE_CAP: Final = 1 << 40


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
            sizes[-1] = min(sizes[-1] + last * (times - 1), _SIZE_CAP)
            last = min(last * times, _SIZE_CAP)
        else:
            last = len(found[0])
            sizes[-1] += last
    return min(sum(sizes), _SIZE_CAP)


# A parsed regular expression as text for the engine `regex`.
#
# The text of the user can mean other things there: `[[:alpha:]]` is a class, and `(a){e}` allows errors. So the text
# is made of what `re` has understood, and has nothing that the two read differently.

_PLACES: Final = {
    _constants.AT_BEGINNING: "^", _constants.AT_BEGINNING_STRING: r"\A", _constants.AT_BOUNDARY: r"\b",
    _constants.AT_NON_BOUNDARY: r"\B", _constants.AT_END: "$", _constants.AT_END_STRING: r"\Z",
}  # fmt: skip
_REPEAT_SUFFIXES: Final = {_constants.MAX_REPEAT: "", _constants.MIN_REPEAT: "?", _constants.POSSESSIVE_REPEAT: "+"}
_LETTERS: Final = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.ASCII: "a", re.UNICODE: "u"}
_GLOBAL: Final = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.ASCII


def rewritten(tree: Any) -> str:
    """Returns the expression, with its flags. Its groups have numbers, and no names."""
    return f"(?{_flags(tree.state.flags & _GLOBAL)}){_text_of(tree)}"


def _text_of(tree: Iterable[tuple[Any, Any]]) -> str:
    return "".join([_item(code, argument) for code, argument in tree])


def _item(code: Any, argument: Any) -> str:
    if code is _constants.LITERAL:
        return _literal(argument)
    if code is _constants.NOT_LITERAL:
        return f"[^{_literal(argument)}]"
    if code is _constants.ANY:
        return "."
    if code is _constants.IN:
        return f"[{''.join([_member(*each) for each in argument])}]"
    if code is _constants.AT:
        return _PLACES[argument]
    if code in _REPEAT_SUFFIXES:
        least, most, body = argument
        limit = "" if most is _constants.MAXREPEAT else int(most)
        return f"(?:{_text_of(body)}){{{int(least)},{limit}}}{_REPEAT_SUFFIXES[code]}"
    if code is _constants.BRANCH:
        return f"(?:{'|'.join(map(_text_of, argument[1]))})"
    if code is _constants.SUBPATTERN:
        number, added, removed, body = argument
        inner = _text_of(body)
        if added or removed:
            inner = f"(?{_flags(added)}{'-' if removed else ''}{_flags(removed)}:{inner})"
        return f"(?:{inner})" if number is None else f"({inner})"
    if code is _constants.ATOMIC_GROUP:
        return f"(?>{_text_of(argument)})"
    if code in (_constants.ASSERT, _constants.ASSERT_NOT):
        direction, body = argument
        sign = "=" if code is _constants.ASSERT else "!"
        return f"(?{'<' if direction < 0 else ''}{sign}{_text_of(body)})"
    if code is _constants.GROUPREF:
        return f"(?:\\{argument})"
    if code is _constants.GROUPREF_EXISTS:
        number, yes, no = argument
        return f"(?({number}){_text_of(yes)}{'|' + _text_of(no) if no else ''})"
    if code is _constants.FAILURE:
        return "(?!)"
    raise NotImplementedError(f"re has {code}")


def _literal(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\U{code:08x}"


def _member(code: Any, argument: Any) -> str:
    if code is _constants.NEGATE:
        return "^"
    if code is _constants.RANGE:
        return f"{_literal(argument[0])}-{_literal(argument[1])}"
    return _CATEGORIES[argument] if code is _constants.CATEGORY else _literal(argument)


def _flags(given: int) -> str:
    return "".join(letter for flag, letter in _LETTERS.items() if given & flag)


# Classes of characters by their category in Unicode, such as `\p{L}` and `\p{Lu}`: `re` knows none of them.


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


T = TypeVar("T")

TIMEOUT_S: Final = 0.25
_STEPS: Final = 10_000_000
"""`re` takes so many in about that time."""
_parser: Final[Any] = importlib.import_module("re._parser")  # no public module gives the tree


class Pattern:
    """A compiled regular expression. Its methods raise `ValueFailure` if they take too long.

    Attributes:
      groups: how many it has.
    """

    __slots__ = ("_compiled", "_flags", "_limited", "_longest", "_name", "_text", "_timeout_s", "groups")

    def __init__(self, text: str, flags: int, name: str, *, to_end: bool, timeout_s: float) -> None:
        self._compiled = re.compile(text, flags)
        self._text = text
        self._flags = flags
        self._name = name
        self._timeout_s = timeout_s
        self._longest = sys.maxsize
        if _has_regex():
            self._longest = steps_of(_parser.parse(text, flags), to_end=to_end).longest(_STEPS)
        self._limited: Any = None
        self.groups = self._compiled.groups

    def search(self, text: str) -> re.Match[str] | None:
        """Returns the first match."""
        if len(text) <= self._longest:
            return self._compiled.search(text)
        found: re.Match[str] | None = self._run(self._with_limit().search, text)
        return found

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Returns the match of the whole text."""
        if len(text) <= self._longest:
            return self._compiled.fullmatch(text)
        found: re.Match[str] | None = self._run(self._with_limit().fullmatch, text)
        return found

    def all(self, text: str) -> list[re.Match[str]]:
        """Returns all matches."""
        if len(text) <= self._longest:
            return list(self._compiled.finditer(text))
        return self._run(lambda *given, **how: list(self._with_limit().finditer(*given, **how)), text)

    def replace(self, text: str, replacement: str) -> str:
        """Returns the text with all matches replaced by a text, which is taken as it is."""
        if len(text) <= self._longest:
            return self._compiled.sub(lambda _: replacement, text)
        replaced: str = self._run(self._with_limit().sub, lambda _: replacement, text)
        return replaced

    def _run(self, call: Callable[..., T], *given: Any) -> T:
        try:
            return in_time(call, self._timeout_s, *given)
        except TimeoutError:
            text = given[-1]
            raise ValueFailure(
                f"{self._name} took longer than {self._timeout_s:g} s for {shown(text)}, of {len(text):,} characters; "
                "repeats in repeats take very long, as in (a+)+b, and so do several that match the same text"
            ) from None

    def _with_limit(self) -> Any:
        if self._limited is None:
            regex = import_regex("regular expressions")
            text = rewritten(_parser.parse(self._text, self._flags))
            if size_of(text) > LARGEST:
                raise ValueFailure(
                    f"{self._name} is too large: with its repeats such as {{1000}} written out, it has more than "
                    f"{LARGEST:,} characters"
                )
            try:
                self._limited = regex.compile(text, regex.V0)
            except (regex.error, OverflowError, RecursionError) as error:
                raise ValueFailure(f"{self._name} cannot be matched with a time limit: {error}") from None
        return self._limited


def compiled(
    text: str,
    flags: int,
    written: str,
    *,
    kind: str = "regular expression",
    to_end: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Pattern:
    """Returns an expression of Python. Raises `ValueFailure` if it is none.

    Args:
      written: the expression as the user has written it, for errors.
      kind: what the user calls it.
      to_end: it has to match a whole text, by `fullmatch`.
    """
    try:
        return Pattern(text, flags, f"the {kind} {shown(written)}", to_end=to_end, timeout_s=timeout_s)
    except (re.error, ValueError, OverflowError, RecursionError) as error:  # ValueError: flags that exclude each other
        is_long = str(error).startswith("Exceeds the limit")  # what Python says of more than 4,300 digits
        reason = "a number in it has too many digits" if is_long else error
        raise ValueFailure(f"{shown(written)} is not a {kind}: {reason}") from None


def in_time(call: Callable[..., T], timeout_s: float, *given: Any) -> T:
    """Calls a method of a pattern of `regex`. Raises `TimeoutError`."""
    return call(*given, timeout=timeout_s, concurrent=False)


@cache
def _has_regex() -> bool:
    return importlib.util.find_spec("regex") is not None


def import_regex(who: str) -> Any:
    """Returns the package. Raises `LocalError` if it is not there, which says who needs it."""
    try:
        import regex
    except ImportError as error:
        raise LocalError(f"{who} need the package regex: pip install 'rmqio[sql]'") from error
    return regex
