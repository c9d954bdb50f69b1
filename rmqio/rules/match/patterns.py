"""Patterns (contains, ends with, wildcards, regular expressions): which a text meets, or one of many texts can.

`VectorscanPatterns` finds all in one pass. `PlainPatterns` tries one after the other, where the wheel is not installed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Final, Protocol, Self

from rmqio.errors import LocalError
from rmqio.rules.errors import Limits, Problem
from rmqio.rules.ir import Atom, Kind, Rule, atoms
from rmqio.rules.match import regexes
from rmqio.rules.match.atoms import Wild, folded, matches, parts_of, text_of

PATTERN_KINDS: Final = frozenset({Kind.CONTAINS, Kind.ENDS_WITH, Kind.WILDCARD, Kind.REGEX})
MOST_BYTES: Final = 16_000
"""Vectorscan takes no longer expressions."""
_END: Final = b"\xff\xfe"
_CHARACTER: Final = rb"(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})"

Build = Callable[[], bytes]


class DatabaseStore(Protocol):
    """Keeps compiled patterns by their content."""

    def get(self, key: str, build: Build) -> bytes:
        """Returns what is stored under a key, or what `build` makes, which it then stores."""


class Patterns(Protocol):
    """Patterns with numbers."""

    def find(self, text: str) -> Sequence[int]:
        """Returns the numbers of the patterns that a text meets. It is valid Unicode."""


class TooManyPatterns(LocalError):
    """Compiled patterns that are larger than `max_database_bytes`."""


class NoStore:
    """Compiles each time."""

    def get(self, key: str, build: Build) -> bytes:
        del key
        return build()


class PlainPatterns:
    """Tries each pattern."""

    def __init__(self, atoms: Sequence[tuple[int, Atom]]) -> None:
        self._cased = [(number, _test(atom)) for number, atom in atoms if not _is_folded(atom)]
        self._folded = [(number, _test(atom)) for number, atom in atoms if _is_folded(atom)]

    def find(self, text: str) -> list[int]:
        found = [number for number, test in self._cased if test(text)]
        if self._folded:
            text = folded(text)
            found += [number for number, test in self._folded if test(text)]
        return found


class Database:
    """Compiled patterns. Scratch space is kept for each thread."""

    def __init__(
        self, expressions: Sequence[bytes], flags: Sequence[int], store: DatabaseStore, limits: Limits
    ) -> None:
        import hyperscan

        self.key = key_of(expressions, flags)
        raw = store.get(self.key, lambda: compiled(expressions, flags))
        if len(raw) > limits.max_database_bytes:
            raise TooManyPatterns(
                f"{len(raw):,} bytes of compiled patterns; max_database_bytes is {limits.max_database_bytes:,}"
            )
        self._database = hyperscan.loadb(raw, hyperscan.HS_MODE_BLOCK)
        self.scan = self._database.scan
        self._own = threading.local()

    def hits(self, text: bytes) -> list[int]:
        """Returns the numbers of the expressions that a text meets."""
        found: list[int] = []
        self.scan(text, _note, 0, found, self.scratch())
        return found

    def scratch(self) -> Any:
        """Returns the scratch space of this thread."""
        try:
            return self._own.scratch
        except AttributeError:
            import hyperscan

            scratch = self._own.scratch = hyperscan.Scratch(self._database)
            return scratch

    def raw(self) -> bytes:
        """Returns the compiled patterns."""
        import hyperscan

        return bytes(hyperscan.dumpb(self._database))


class VectorscanPatterns:
    """Finds all patterns at once.

    Vectorscan (that of hyperscan 0.9.1) overlooks some texts whose last byte is the last one of a match. So no match
    ends there: a byte that UTF-8 does not have is the end of a text, and one more is behind it. Regular expressions
    would see such bytes. They are looked for with newlines behind the text, where `$` matches before each newline; RE2
    decides on those that are found.

    Texts that ignore case are stored in small letters, and found without regard to the case of ASCII. So one pass
    does for a text that is all ASCII. Any other is scanned as it is for patterns with case, and folded for the others.
    """

    def __init__(self, atoms: Sequence[tuple[int, Atom]], store: DatabaseStore, limits: Limits) -> None:
        self._folded: set[int] = set()
        self._confirm: dict[int, Any] = {}
        self._alone: list[tuple[int, Any]] = []
        self._of_folded: list[tuple[int, Any]] = []
        """Expressions that the scan overlooks in some texts."""
        self._finds_ascii = False
        texts: list[tuple[int, bytes, int]] = []
        regular: list[tuple[int, bytes, int]] = []
        for number, atom in sorted(
            atoms, key=_content
        ):  # so that equal patterns have equal keys, whatever their numbers
            if atom.kind is Kind.REGEX:
                plan = regexes.plan_of(str(atom.value), atom.flags, limits.max_regex_bytes, with_vectorscan=True)
                confirm = regexes.re2_of(str(atom.value), atom.flags).search
                if plan.scan_flags is None:
                    self._alone.append((number, confirm))
                else:
                    self._confirm[number] = confirm
                    if plan.overlooks_folded:
                        self._of_folded.append((number, confirm))
                    self._finds_ascii = self._finds_ascii or plan.finds_ascii
                    regular.append((number, plan.scanned.encode(), plan.scan_flags))
                continue
            expression = _expression(atom)
            if len(expression) > MOST_BYTES:
                self._alone.append((number, _search(atom)))
                continue
            flags = regexes.SINGLEMATCH | regexes.DOTALL
            if atom.ignore_case:
                flags |= regexes.CASELESS
                self._folded.add(number)
            texts.append((number, expression, flags))
        self._texts = [number for number, _, _ in texts]
        self._regular = [number for number, _, _ in regular]
        self._text_database, self._regular_database = (
            Database([each[1] for each in some], [each[2] for each in some], store, limits) if some else None
            for some in (texts, regular)
        )

    @property
    def databases(self) -> list[Database]:
        """The compiled parts."""
        return [each for each in (self._text_database, self._regular_database) if each is not None]

    def find(self, text: str) -> Sequence[int]:
        raw = text.encode()
        found: list[int] = []
        if self._text_database is not None:
            numbers, small = self._texts, self._folded
            hits = self._text_database.hits(raw + _END)
            found = [numbers[hit] for hit in hits]
            if small and not text.isascii():
                found = [number for number in found if number not in small]
                more = self._text_database.hits(folded(text).encode() + _END)
                found += [numbers[hit] for hit in more if numbers[hit] in small]
        if self._regular_database is not None:
            hits = self._regular_database.hits(raw + b"\n\n")
            if self._finds_ascii and not text.isascii() and regexes.has_folded(text):
                hits += self._regular_database.hits(regexes.to_ascii(text).encode() + b"\n\n")
                hits = [*dict.fromkeys(hits)]
            for hit in hits:
                number = self._regular[hit]
                if self._confirm[number](text) is not None:
                    found.append(number)
        for number, search in self._alone:
            if search(text) is not None:
                found.append(number)
        if self._of_folded and not text.isascii() and regexes.has_folded(text):
            there = set(found)
            found += [number for number, search in self._of_folded if number not in there and search(text) is not None]
        return found


def compiled(expressions: Sequence[bytes], flags: Sequence[int]) -> bytes:
    """Compiles expressions, without the GIL, to bytes that another process can load."""
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=list(expressions), ids=list(range(len(expressions))), flags=list(flags))
    return bytes(hyperscan.dumpb(database))


def _note(number: int, begin: int, end: int, flags: int, hits: Any) -> None:
    hits.append(number)


def key_of(expressions: Sequence[bytes], flags: Sequence[int]) -> str:
    """Returns the hash of all that the compiled form depends on."""
    digest = hashlib.sha256(f"1 {importlib.metadata.version('hyperscan')} {platform.machine()} ".encode())
    for expression, flag in zip(expressions, flags, strict=True):
        digest.update(b"%d %d " % (flag, len(expression)))
        digest.update(expression)
    return digest.hexdigest()


def _content(pair: tuple[int, Atom]) -> tuple[str, ...]:
    atom = pair[1]
    return str(atom.kind), str(atom.value), atom.flags, str(atom.ignore_case)


def _is_folded(atom: Atom) -> bool:
    return atom.ignore_case and atom.kind is not Kind.REGEX


def _expression(atom: Atom) -> bytes:
    value = str(atom.value)
    if atom.kind is Kind.REGEX:
        return value.encode()
    if atom.kind is Kind.CONTAINS:
        return escaped(value)
    if atom.kind is Kind.ENDS_WITH:
        return escaped(value) + rb"\xff"
    parts = parts_of(value)
    made = [b"" if parts[0] is Wild.ANY else rb"\A"]
    for part in parts[parts[0] is Wild.ANY : len(parts) - (parts[-1] is Wild.ANY)]:
        made.append(b".*" if part is Wild.ANY else _CHARACTER if isinstance(part, Wild) else escaped(part))
    made.append(b"" if parts[-1] is Wild.ANY else rb"\xff")
    return b"".join(made)


_SPECIAL: Final = re.compile(rb"[^A-Za-z0-9_\x80-\xff]")


def escaped(text: str) -> bytes:
    """Returns the text as an expression. Hexadecimal escapes suit every character, also white space and NUL."""
    return _SPECIAL.sub(lambda found: b"\\x%02x" % found[0][0], text.encode())


def _search(atom: Atom) -> Callable[[str], bool | None]:
    """The test of a text that is not folded: True, or None as expressions say it."""
    test = _test(atom)
    return (lambda text: test(folded(text)) or None) if atom.ignore_case else lambda text: test(text) or None


def _test(atom: Atom) -> Callable[[str], bool]:
    value = str(atom.value)
    if atom.kind is Kind.CONTAINS:
        return lambda text: value in text
    if atom.kind is Kind.ENDS_WITH:
        return lambda text: text.endswith(value)
    if atom.kind is Kind.WILDCARD:
        parts = parts_of(value)
        return lambda text: matches(parts, text)
    search = regexes.re2_of(value, atom.flags).search
    return lambda text: search(text) is not None


# One look at many texts, such as a column, or all of an event: which of them can meet a condition.
#
# A call of Vectorscan costs more than it takes to look through a short text. So the texts are joined, and looked
# through at once. Whatever is found is then looked up by itself: a text can seem to meet more than it does, never
# less.

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


# Finds the rule that makes the patterns of a field too large.

_REPEATS: Final = re.compile(r"\{(\d+)?,?(\d+)?\}")


def too_large(rules: Sequence[Rule], patterns: Sequence[tuple[int, Atom]], reason: str) -> Problem:
    """Returns the problem at the rule whose patterns on the field are the largest: to compile each alone takes long."""
    field = patterns[0][1].field
    sizes = {rule.id: sum(_size(each) for each in set(atoms(rule.condition)) if _is_of(each, field)) for rule in rules}
    largest = max(rules, key=lambda rule: sizes[rule.id])
    name = "conditions without a field" if field is None else f"the field {field!r}"
    return Problem(
        largest.place.file,
        largest.place.line,
        largest.id,
        f"{name}: {reason}. Of {sum(size > 0 for size in sizes.values()):,} rules with patterns there, this one has "
        "the largest: shorten its lists or the repeats of its regular expressions, or raise the limit",
    )


def _is_of(atom: Atom, field: str | None) -> bool:
    return atom.field == field and atom.kind in PATTERN_KINDS


def _size(atom: Atom) -> int:
    """About how large a pattern is: repeats of a regular expression are copies of a part of it."""
    text = str(atom.value)
    size = len(text.encode("utf-8", "replace"))
    if atom.kind is Kind.REGEX:
        for low, high in _REPEATS.findall(text):
            size += 4 * int((high or low or "0")[:6])
    return size
