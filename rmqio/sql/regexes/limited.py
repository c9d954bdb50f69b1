"""Regular expressions with a time limit.

`re` has none. `regex` has one, but takes two to four times as long for what both do at once. So `re` matches the texts
for which it surely takes few steps, and `regex` the others. Without the package, `re` matches all.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

from rmqio.errors import LocalError
from rmqio.sql.regexes.rewrite import rewritten
from rmqio.sql.regexes.sizes import LARGEST, size_of
from rmqio.sql.regexes.steps import steps_of
from rmqio.sql.values import ValueFailure, shown

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
