"""The index of one field: from a value to the numbers of the atoms that it meets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rmqio.rules.ir import Atom, Kind
from rmqio.rules.limits import Limits
from rmqio.rules.match.affixes import Beginnings
from rmqio.rules.match.cuts import Cuts
from rmqio.rules.match.ordered import Networks, Thresholds
from rmqio.rules.match.patterns import PATTERN_KINDS, Patterns
from rmqio.rules.plan.atoms import ORDER_KINDS
from rmqio.rules.plan.values import folded, is_number, number_of, text_of, whole_text

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
