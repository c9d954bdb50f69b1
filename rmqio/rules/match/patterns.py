"""Patterns of one field (contains, ends with, wildcards, regular expressions): which of them a text meets.

`VectorscanPatterns` finds all in one pass. `PlainPatterns` tries one after the other, where the wheel is not installed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from rmqio.errors import LocalError
from rmqio.rules.ir import Atom, Kind
from rmqio.rules.limits import Limits
from rmqio.rules.match import regexes
from rmqio.rules.plan.values import folded
from rmqio.rules.plan.wildcards import Wild, matches, parts_of

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
