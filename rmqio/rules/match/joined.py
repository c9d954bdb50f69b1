"""One look at many texts, such as a column, or all of an event: which of them can meet a condition.

A call of Vectorscan costs more than it takes to look through a short text. So the texts are joined, and looked through
at once. Whatever is found is then looked up by itself: a text can seem to meet more than it does, never
less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Final, Self

from rmqio.rules.ir import Atom, Kind
from rmqio.rules.limits import Limits
from rmqio.rules.match import regexes
from rmqio.rules.match.patterns import MOST_BYTES, Database, DatabaseStore, TooManyPatterns, escaped
from rmqio.rules.plan.values import text_of
from rmqio.rules.plan.wildcards import parts_of

_BETWEEN: Final = "\x00"
_MOST_PATTERNS: Final = 1_000
_MOST_PER_TEXT: Final = 2
_LEAST_TEXTS: Final = 16
_REST: Final = 64
"""Columns that are not joined after one whose texts met too much."""
_PARTS: Final = frozenset({Kind.CONTAINS, Kind.STARTS_WITH, Kind.ENDS_WITH, Kind.WILDCARD})


class JoinedTexts:
    """Conditions of a field that are plain text."""

    def __init__(self, exact: set[str], folded: set[str], database: Database | None, longest: int) -> None:
        self.database = database
        self._exact = exact
        self._folded = folded
        self._longest = longest
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
            if atom.kind is Kind.WILDCARD:  # one of its texts is to be in it
                text = max((each for each in parts_of(text) if isinstance(each, str)), key=len, default="")
            if atom.kind is Kind.EQUALS:
                (folded if atom.ignore_case else exact).add(text)
            elif atom.kind in _PARTS and text and _BETWEEN not in text:
                head = _BETWEEN if atom.kind is Kind.STARTS_WITH else ""
                tail = _BETWEEN if atom.kind is Kind.ENDS_WITH else ""
                expressions.append(escaped(f"{head}{text}{tail}"))
                if len(expressions[-1]) > MOST_BYTES:
                    return None
                flags.append(regexes.CASELESS if atom.ignore_case else 0)
            else:
                return None
        if len(expressions) > _MOST_PATTERNS or (expressions and not regexes.has_vectorscan()):
            return None
        try:
            database = Database(expressions, flags, store, limits) if expressions else None
        except TooManyPatterns:
            return None
        return cls(exact, folded, database, limits.max_value_bytes // 4)

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
        if self.database is not None:
            ends = _ends_in(self.database, joined, len(texts) * _MOST_PER_TEXT)
            if ends is None:
                self._left = _REST
                return None
            if ends:
                starts = list(accumulate(lengths, lambda start, length: start + length + 1, initial=1))
                # The last byte of a match is in its text, or right behind it.
                found.update(bisect_right(starts, end - 1) - 1 for end in ends)
        return found


def _ends_in(database: Database, joined: str, most: int) -> list[int] | None:
    """The ends of matches; None: there are more of them. None ends at the last byte, see `VectorscanPatterns`."""
    import hyperscan

    ends: list[int] = []

    def note(number: int, begin: int, end: int, flags: int, context: Any) -> bool:
        ends.append(end)
        return len(ends) > most

    try:
        database.scan(f"{_BETWEEN}{joined}{_BETWEEN}{_BETWEEN}".encode(), note, 0, None, database.scratch())
    except hyperscan.ScanTerminated:
        return None
    return ends


MakeJoined = Callable[[Iterable[Atom]], JoinedTexts | None]
"""Makes what looks for conditions in many texts; None: not all of them can be looked for."""
