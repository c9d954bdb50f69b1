"""The index of one field: from a value to the numbers of the atoms that it meets."""

from __future__ import annotations

import functools
import ipaddress
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, Final, NamedTuple

from rmqio.rules.errors import Limits
from rmqio.rules.ir import Atom, Kind
from rmqio.rules.match.atoms import (
    ORDER_KINDS,
    cut,
    everything,
    flat,
    folded,
    is_number,
    number_of,
    text_of,
    values_at,
    whole_text,
)
from rmqio.rules.match.patterns import PATTERN_KINDS, Patterns

# Beginnings: which of many texts another text begins with, by one binary search.


class Beginnings:
    """Texts with numbers.

    All texts that a text begins with stand in order before it, and each begins with the one before. So the nearest text
    before it leads to all of them, by links from each to the longest other one that it begins with.
    """

    def __init__(self, texts: Iterable[tuple[str, int]]) -> None:
        by_text: dict[str, list[int]] = {}
        for text, number in texts:
            by_text.setdefault(text, []).append(number)
        self._texts = sorted(by_text)
        self._numbers = [by_text[text] for text in self._texts]
        self._links: list[int] = []
        open_: list[int] = []
        for at, text in enumerate(self._texts):
            while open_ and not text.startswith(self._texts[open_[-1]]):
                open_.pop()
            self._links.append(open_[-1] if open_ else -1)
            open_.append(at)

    def __bool__(self) -> bool:
        return bool(self._texts)

    def of(self, text: str) -> Sequence[int]:
        """Returns the numbers of all that a text begins with."""
        texts = self._texts
        at = bisect_right(texts, text) - 1
        if at < 0:
            return ()
        links = self._links
        found: list[int] = []
        while at >= 0:
            if text.startswith(texts[at]):
                found += self._numbers[at]
            at = links[at]
        return found


# Thresholds, by binary search, and networks, by a look-up for each length of prefix.

_LONGEST_ADDRESS: Final = 64


class Thresholds:
    """Less, at most, greater, at least: with constants that compare with each other."""

    def __init__(self, atoms: Iterable[tuple[int, Atom]]) -> None:
        self._rows: list[tuple[Kind, list[Any], list[int]]] = []
        given = [*atoms]
        for kind in (Kind.LESS, Kind.AT_MOST, Kind.GREATER, Kind.AT_LEAST):
            pairs = sorted(((atom.value, number) for number, atom in given if atom.kind is kind), key=_value)
            if pairs:
                self._rows.append((kind, [value for value, _ in pairs], [number for _, number in pairs]))

    def __bool__(self) -> bool:
        return bool(self._rows)

    def of(self, value: Any) -> list[int]:
        """Returns the numbers of the thresholds that a value meets."""
        found: list[int] = []
        for kind, values, numbers in self._rows:
            if kind is Kind.LESS:
                found += numbers[bisect_right(values, value) :]
            elif kind is Kind.AT_MOST:
                found += numbers[bisect_left(values, value) :]
            elif kind is Kind.GREATER:
                found += numbers[: bisect_left(values, value)]
            else:
                found += numbers[: bisect_right(values, value)]
        return found


class Networks:
    """Networks of IPv4 and IPv6."""

    def __init__(self, atoms: Iterable[tuple[int, Atom]]) -> None:
        self._by_shift: dict[tuple[int, int], dict[int, list[int]]] = {}
        for number, atom in atoms:
            network = ipaddress.ip_network(str(atom.value))
            shift = network.max_prefixlen - network.prefixlen
            table = self._by_shift.setdefault((network.version, shift), {})
            table.setdefault(int(network.network_address) >> shift, []).append(number)

    def __bool__(self) -> bool:
        return bool(self._by_shift)

    def of(self, text: str) -> list[int]:
        """Returns the numbers of the networks that an address is in."""
        if len(text) > _LONGEST_ADDRESS:
            return []
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return []
        whole, version = int(address), address.version
        found: list[int] = []
        for (of_version, shift), table in self._by_shift.items():
            if of_version == version:
                found += table.get(whole >> shift, ())
        return found


def _value(pair: tuple[Any, int]) -> Any:
    return pair[0]


# Long texts and long lists in events: what is looked at of them, and how many there were.


class CutCounts(NamedTuple):
    """Of how much only the beginning was looked at, since it was last asked for."""

    texts: int = 0
    lists: int = 0


class Cuts:
    """Cuts, and notes that it has; what was cut is counted afterwards, in the events where there was something.

    A look at an event can come to a text more than once: a count there would count it twice.
    """

    def __init__(self, limits: Limits) -> None:
        self._max_bytes = limits.max_value_bytes
        self._most = limits.max_values
        self.noted = 0
        """Another number after something was cut, also if several threads cut."""
        self._start = functools.partial(_steps, limits.max_values, self._note)
        self._lock = threading.Lock()
        self._counts = CutCounts()

    def text(self, text: str) -> str:
        """Returns what is looked at of a text."""
        found = cut(text, self._max_bytes)
        if len(found) < len(text):
            self._note()
        return found

    def values(self, values: Iterator[Any]) -> list[Any]:
        """Returns the values that are looked at."""
        found = list(islice(values, self._most + 1))
        if len(found) > self._most:
            found.pop()
            self._note()
        return found

    def values_at(self, event: Any, path: str) -> list[Any] | None:
        """Returns what a path leads to, by the members of lists that are looked at."""
        return values_at(event, path, self._start)

    def count(self, events: Iterable[Mapping[str, Any] | None], fields: Iterable[str | None]) -> None:
        """Counts what is cut in events by those who look at some fields; None is all of an event."""
        fields = [*fields]
        counts = [self._of_event(event, fields) for event in events if event is not None]
        with self._lock:
            self._counts = CutCounts(*map(sum, zip(self._counts, *counts, strict=True)))

    def taken(self) -> CutCounts:
        """Returns the counts, and begins anew."""
        with self._lock:
            counts, self._counts = self._counts, CutCounts()
        return counts

    def _note(self) -> None:
        self.noted += 1

    def _of_event(self, event: Mapping[str, Any], fields: Iterable[str | None]) -> CutCounts:
        long: set[int] = set()
        lists = 0
        for field in fields:
            values = everything(event)
            more: list[None] = []
            if field is not None:
                note = functools.partial(more.append, None)
                found = values_at(event, field, functools.partial(_steps, self._most, note))
                values = (leaf for value in found or () for leaf in flat(value))
            leaves = list(islice(values, self._most + 1))
            lists += bool(more) or len(leaves) > self._most
            texts = (each for each in leaves[: self._most] if isinstance(each, str))
            long.update(id(each) for each in texts if len(cut(each, self._max_bytes)) < len(each))
        return CutCounts(len(long), lists)


def _steps(most: int, note: Callable[[], object]) -> Iterator[None]:
    """Steps that may be taken; it notes if more are wanted."""
    yield from repeat(None, most)
    note()


MakePatterns = Callable[[Sequence[tuple[int, Atom]]], Patterns]


class FieldIndex:
    """All atoms on one field, each with its number."""

    def __init__(
        self, atoms: Iterable[tuple[int, Atom]], limits: Limits, cuts: Cuts, patterns: MakePatterns, *, alone: bool
    ) -> None:
        by_kind: dict[Kind, list[tuple[int, Atom]]] = {}
        for number, atom in atoms:
            by_kind.setdefault(atom.kind, []).append((number, atom))
        self.cuts = cuts
        self._surely_whole = limits.max_value_bytes // 4
        self.exists = tuple(number for number, _ in by_kind.get(Kind.EXISTS, ()))
        self._nulls = (*self.exists, *(number for number, _ in by_kind.get(Kind.IS_NULL, ())))
        self._exact: dict[str, list[int]] = {}
        self._folded: dict[str, list[int]] = {}
        self._numbers: dict[int | float, list[int]] = {}
        for number, atom in by_kind.get(Kind.EQUALS, ()):
            table = self._folded if atom.ignore_case else self._exact
            table.setdefault(text_of(atom.value) or "", []).append(number)
            if is_number(atom.value):
                self._numbers.setdefault(atom.value, []).append(number)
        begins = by_kind.get(Kind.STARTS_WITH, ())
        self._any_text = tuple(number for number, atom in begins if not atom.value)
        by_kind[Kind.STARTS_WITH] = [pair for pair in begins if pair[1].value]
        self._begins = _beginnings(by_kind, Kind.STARTS_WITH)
        kinds = [kind for kind in PATTERN_KINDS if kind in by_kind]
        self._ends = (Beginnings(()), Beginnings(()))
        if kinds == [Kind.ENDS_WITH] or not alone:  # otherwise the scan that there is anyway finds them
            self._ends = _beginnings(by_kind, Kind.ENDS_WITH)
            kinds = [kind for kind in kinds if kind is not Kind.ENDS_WITH]
        found = [pair for kind in sorted(kinds) for pair in by_kind[kind]]
        self.patterns = patterns(found) if found else None
        self._networks = Networks(by_kind.get(Kind.CIDR, ()))
        order = [pair for kind in ORDER_KINDS for pair in by_kind.get(kind, ())]
        self._number_order = Thresholds(pair for pair in order if is_number(pair[1].value))
        self._text_order = Thresholds(pair for pair in order if isinstance(pair[1].value, str))

        self._of_text = self._made_for_texts()

    def of(self, value: Any) -> tuple[int, ...]:
        """Returns the numbers of the atoms that a single value meets."""
        if value.__class__ is str or isinstance(value, str):
            if len(value) > self._surely_whole:
                value = self.cuts.text(value)
            text = value if value.isascii() else whole_text(value)
            found = self._of_text(text)
            if self._number_order and (number := number_of(text)) is not None:
                found += self._number_order.of(number)
            if self._text_order:
                found += self._text_order.of(text)
            return tuple(found) if found else ()
        if value is None:
            return self._nulls
        as_text = text_of(value)
        found = [*self.exists] if as_text is None else self._of_text(as_text)
        if is_number(value):
            found += self._numbers.get(value, ())
            if self._number_order and value == value:  # NaN
                found += self._number_order.of(value)
        return tuple(dict.fromkeys(found))

    def _made_for_texts(self) -> Callable[[str], list[int]]:
        """A function of the parts that this field has: asking each part whether it is empty costs more than most do."""
        begins, begins_folded = self._begins
        ends, ends_folded = self._ends
        lines = [f"found = [{', '.join(map(str, (*self.exists, *self._any_text)))}]"]
        if self._exact:
            lines += ["if text in exact: found += exact[text]"]
        if self._folded or begins_folded or ends_folded:
            lines += ["folded = text.lower() if text.isascii() else fold(text)"]
        if self._folded:
            lines += ["if folded in folded_exact: found += folded_exact[folded]"]
        for name, part, argument in (
            ("begins", begins, "text"),
            ("begins_folded", begins_folded, "folded"),
            ("ends", ends, "text[::-1]"),
            ("ends_folded", ends_folded, "folded[::-1]"),
            ("networks", self._networks, "text"),
            ("patterns", self.patterns, "text"),
        ):
            if part:
                lines += [f"found += {name}({argument})"]
        parts: dict[str, Any] = {
            "fold": folded,
            "exact": self._exact,
            "folded_exact": self._folded,
            "begins": begins.of,
            "begins_folded": begins_folded.of,
            "ends": ends.of,
            "ends_folded": ends_folded.of,
            "networks": self._networks.of,
            "patterns": None if self.patterns is None else self.patterns.find,
        }
        exec("\n    ".join(["def of_text(text):", *lines, "return found"]), parts)
        made: Callable[[str], list[int]] = parts["of_text"]
        return made


def _beginnings(by_kind: dict[Kind, list[tuple[int, Atom]]], kind: Kind) -> tuple[Beginnings, Beginnings]:
    """Beginnings with case, and those that ignore it. Endings are the beginnings of the reversed text."""
    step = 1 if kind is Kind.STARTS_WITH else -1
    pairs = by_kind.get(kind, ())
    cased, folded = (
        Beginnings((str(atom.value)[::step], number) for number, atom in pairs if atom.ignore_case is is_folded)
        for is_folded in (False, True)
    )
    return cased, folded
