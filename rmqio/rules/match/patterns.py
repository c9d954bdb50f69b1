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
from rmqio.rules.plan.wildcards import Wild, matches, parts_of

PATTERN_KINDS: Final = frozenset({Kind.CONTAINS, Kind.ENDS_WITH, Kind.WILDCARD, Kind.REGEX})
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
            folded = text.casefold()
            found += [number for number, test in self._folded if test(folded)]
        return found


class VectorscanPatterns:
    """Finds all patterns at once. Scratch space is kept for each thread.

    Texts that ignore case are stored in their folded form, and found without regard to the case of ASCII. So one pass
    does for a text that is all ASCII. Any other is scanned as it is for patterns with case, and folded for the others.
    """

    def __init__(self, atoms: Sequence[tuple[int, Atom]], store: DatabaseStore, limits: Limits) -> None:
        import hyperscan

        self._numbers: list[int] = []
        self._folded: set[int] = set()
        self._confirmed: dict[int, Any] = {}
        self._alone: list[tuple[int, Any]] = []
        expressions: list[bytes] = []
        flags: list[int] = []
        for number, atom in sorted(
            atoms, key=_content
        ):  # so that equal patterns have equal keys, whatever their numbers
            scan_flags: int | None = regexes.SINGLEMATCH | regexes.DOTALL
            if atom.kind is Kind.REGEX:
                plan = regexes.plan_of(str(atom.value), atom.flags, limits.max_regex_bytes, with_vectorscan=True)
                scan_flags = plan.scan_flags
                if plan.is_confirmed:
                    confirm = regexes.re2_of(str(atom.value), atom.flags).search
                    if scan_flags is None:
                        self._alone.append((number, confirm))
                        continue
                    self._confirmed[number] = confirm
            elif atom.ignore_case:
                scan_flags = regexes.SINGLEMATCH | regexes.DOTALL | regexes.CASELESS
                self._folded.add(number)
            assert scan_flags is not None
            expressions.append(_expression(atom))
            flags.append(scan_flags)
            self._numbers.append(number)
        self.key = key_of(expressions, flags)
        self._database: Any = None
        self._scan: Any = None
        if expressions:
            raw = store.get(self.key, lambda: compiled(expressions, flags))
            if len(raw) > limits.max_database_bytes:
                raise LocalError(f"{len(raw):,} bytes of compiled patterns; max_database_bytes is "
                                 f"{limits.max_database_bytes:,}")  # fmt: skip
            self._database = hyperscan.loadb(raw, hyperscan.HS_MODE_BLOCK)
            self._scan = self._database.scan
            self.size = len(raw)
        self._own = threading.local()

    def find(self, text: str) -> Sequence[int]:
        hits: list[int] = []
        if self._database is not None:
            try:
                scratch = self._own.scratch
            except AttributeError:
                scratch = self._made_scratch()
            self._scan(text.encode(), _note, 0, hits, scratch)
            if self._folded and not text.isascii():
                return self._found_beyond_ascii(text, hits, scratch)
        if not hits and not self._alone:
            return ()
        numbers = self._numbers
        return self._confirmed_of(text, [numbers[hit] for hit in hits])

    def _found_beyond_ascii(self, text: str, hits: list[int], scratch: Any) -> Sequence[int]:
        numbers, folded = self._numbers, self._folded
        found = [numbers[hit] for hit in hits if numbers[hit] not in folded]
        more: list[int] = []
        self._scan(text.casefold().encode(), _note, 0, more, scratch)
        return self._confirmed_of(text, found + [numbers[hit] for hit in more if numbers[hit] in folded])

    def _confirmed_of(self, text: str, found: list[int]) -> Sequence[int]:
        confirmed = self._confirmed
        if confirmed:
            found = [each for each in found if each not in confirmed or confirmed[each](text) is not None]
        for number, search in self._alone:
            if search(text) is not None:
                found.append(number)
        return found

    def raw(self) -> bytes:
        """The compiled patterns."""
        import hyperscan

        return b"" if self._database is None else bytes(hyperscan.dumpb(self._database))

    def _made_scratch(self) -> Any:
        """The scratch space of this thread."""
        import hyperscan

        scratch = self._own.scratch = hyperscan.Scratch(self._database)
        return scratch


def compiled(expressions: Sequence[bytes], flags: Sequence[int]) -> bytes:
    """Compiles expressions, without the GIL, to bytes that another process can load."""
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=list(expressions), ids=list(range(len(expressions))), flags=list(flags))
    return bytes(hyperscan.dumpb(database))


def _note(number: int, begin: int, end: int, flags: int, hits: list[int]) -> None:
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
        return escaped(value) + rb"\z"
    parts = parts_of(value)
    made = [b"" if parts[0] is Wild.ANY else rb"\A"]
    for part in parts[parts[0] is Wild.ANY : len(parts) - (parts[-1] is Wild.ANY)]:
        made.append(b".*" if part is Wild.ANY else _CHARACTER if isinstance(part, Wild) else escaped(part))
    made.append(b"" if parts[-1] is Wild.ANY else rb"\z")
    return b"".join(made)


_SPECIAL: Final = re.compile(rb"[^A-Za-z0-9_\x80-\xff]")


def escaped(text: str) -> bytes:
    """Returns the text as an expression. Hexadecimal escapes suit every character, also white space and NUL."""
    return _SPECIAL.sub(lambda found: b"\\x%02x" % found[0][0], text.encode())


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
