"""One look at a column of texts: which of them can meet a condition.

A call of Vectorscan costs more than it takes to look through a short text. So the texts of a column are joined, and
looked through at once. Whatever is found is then looked up by itself: a text can seem to meet more than it does, never
less.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final, Self

from rmqio.rules.ir import Atom, Kind
from rmqio.rules.limits import Limits
from rmqio.rules.match import regexes
from rmqio.rules.match.patterns import DatabaseStore, compiled, escaped, key_of
from rmqio.rules.plan.values import text_of

_BETWEEN: Final = "\x00"
_MOST_PATTERNS: Final = 1_000
_MOST_PER_TEXT: Final = 2
_LEAST_TEXTS: Final = 16
_REST: Final = 64
"""Columns that are not joined after one whose texts met too much."""
_PARTS: Final = frozenset({Kind.CONTAINS, Kind.STARTS_WITH, Kind.ENDS_WITH})


class JoinedTexts:
    """Conditions of a field that are plain text."""

    def __init__(self, exact: set[str], folded: set[str], database: Any, key: str, longest: int) -> None:
        self.key = key
        """Of the compiled patterns; empty: there are none."""
        self._exact = exact
        self._folded = folded
        self._database = database
        self._longest = longest
        self._own = threading.local()
        self._left = 0

    @classmethod
    def of(cls, atoms: Iterable[Atom], store: DatabaseStore, limits: Limits) -> Self | None:
        """Returns the conditions; None: there is one that cannot be looked for in this way."""
        exact: set[str] = set()
        folded: set[str] = set()
        expressions: list[bytes] = []
        flags: list[int] = []
        for atom in atoms:
            text = text_of(atom.value) or ""
            if atom.kind is Kind.EQUALS:
                (folded if atom.ignore_case else exact).add(text)
            elif atom.kind in _PARTS and text and _BETWEEN not in text:
                head = _BETWEEN if atom.kind is Kind.STARTS_WITH else ""
                tail = _BETWEEN if atom.kind is Kind.ENDS_WITH else ""
                expressions.append(escaped(f"{head}{text}{tail}"))
                flags.append(regexes.CASELESS if atom.ignore_case else 0)
            else:
                return None
        if len(expressions) > _MOST_PATTERNS or (expressions and not regexes.has_vectorscan()):
            return None
        database, key = None, ""
        if expressions:
            import hyperscan

            key = key_of(expressions, flags)
            raw = store.get(key, lambda: compiled(expressions, flags))
            database = hyperscan.loadb(raw, hyperscan.HS_MODE_BLOCK)
        return cls(exact, folded, database, key, limits.max_value_bytes // 4)

    def raw(self) -> bytes:
        """Returns the compiled patterns."""
        import hyperscan

        return bytes(hyperscan.dumpb(self._database))

    def candidates(self, texts: Sequence[str]) -> set[int] | None:
        """Returns the positions of the texts that can meet a condition; None: each is to be looked up by itself."""
        if self._left:
            self._left -= 1
            return None
        joined = _BETWEEN.join(texts)
        if len(texts) < _LEAST_TEXTS or not joined.isascii():
            return None
        lengths = list(map(len, texts))
        if max(lengths) > self._longest:  # such a text is cut before it is looked at, and then ends elsewhere
            return None
        found: set[int] = set()
        if self._exact and not self._exact.isdisjoint(texts):
            found.update(at for at, text in enumerate(texts) if text in self._exact)
        if self._folded:
            lower = [text.lower() for text in texts]
            if not self._folded.isdisjoint(lower):
                found.update(at for at, text in enumerate(lower) if text in self._folded)
        if self._database is not None:
            ends = self._ends_in(joined, len(texts) * _MOST_PER_TEXT)
            if ends is None:
                self._left = _REST
                return None
            if ends:
                starts = list(accumulate(lengths, lambda start, length: start + length + 1, initial=1))
                # The last byte of a match is in its text, or right behind it.
                found.update(bisect_right(starts, end - 1) - 1 for end in ends)
        return found

    def _ends_in(self, joined: str, most: int) -> list[int] | None:
        """Where matches end; None: there are more of them."""
        import hyperscan

        ends: list[int] = []

        def note(number: int, begin: int, end: int, flags: int, context: Any) -> bool:
            ends.append(end)
            return len(ends) > most

        try:
            scratch = self._own.scratch
        except AttributeError:
            scratch = self._own.scratch = hyperscan.Scratch(self._database)
        try:
            self._database.scan(f"{_BETWEEN}{joined}{_BETWEEN}".encode(), note, 0, None, scratch)
        except hyperscan.ScanTerminated:
            return None
        return ends
