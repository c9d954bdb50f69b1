"""One event that may match rules: answers for the atoms that no index finds, and the values that met atoms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice, product
from typing import Any, Final

from rmqio.rules.ir import FIELD_KINDS, Atom, Kind
from rmqio.rules.limits import Limits
from rmqio.rules.match.lookup import Lookup
from rmqio.rules.plan.atoms import condition_text
from rmqio.rules.plan.plan import Plan
from rmqio.rules.plan.values import cut, folded, is_number, leaves_at, related, text_of, whole_text

_SHOWN: Final = 256

Predicates = Mapping[int, Callable[[Mapping[str, Any]], Any]]


class Evidence:
    """It remembers what it has been asked."""

    def __init__(
        self,
        plan: Plan,
        lookups: Mapping[str | None, Lookup],
        predicates: Predicates,
        event: Mapping[str, Any],
        limits: Limits,
    ) -> None:
        self._plan = plan
        self._lookups = lookups
        self._predicates = predicates
        self._event = event
        self._limits = limits
        self._known: dict[int, bool] = {}
        self._met: dict[str | None, dict[int, Any]] = {}

    def late(self, number: int) -> bool:
        """Whether an atom of several fields matches."""
        answer = self._known.get(number)
        if answer is None:
            atom = self._plan.atoms[number]
            if atom.kind is Kind.SQL:
                answer = bool(self._predicates[number](self._event))
            else:
                answer = self._related_value(atom) is not None
            self._known[number] = answer
        return answer

    def shown(self, number: int) -> tuple[str, str, Any]:
        """The field, the condition, and the first value that met it."""
        atom, first = self._plan.atoms[number], self._plan.shown[number]
        if atom.kind is Kind.SQL:
            return "", condition_text(first), True
        if atom.kind in FIELD_KINDS:
            value = (self._related_value(atom) or (None,))[0]
        else:
            value = self._met_of(atom.field).get(number)
        if value is not None and value.__class__ not in (str, int, float, bool):
            value = text_of(value)
        return atom.field or "", condition_text(first), value[:_SHOWN] if isinstance(value, str) else value

    def _met_of(self, field: str | None) -> dict[int, Any]:
        """The first value that met each atom of a field."""
        met = self._met.get(field)
        if met is None:
            met = self._met[field] = {}
            atoms_of = self._lookups[field].atoms_of
            for each in leaves_at(self._event, field, self._limits.max_values) or ():
                for number in atoms_of(each):
                    met.setdefault(number, each)
        return met

    def _related_value(self, atom: Atom) -> tuple[Any] | None:
        """The first value of a field that is to one of another field's as the atom says."""
        values, others = self._values_at(str(atom.field)), self._values_at(str(atom.value))
        if atom.kind is not Kind.FIELD:
            pairs = islice(product(values, others), self._limits.max_values)
            met = (one for one, other in pairs if related(atom.kind, one, other, ignore_case=atom.ignore_case))
            return next(zip(met, strict=False), None)
        if not others:
            return None
        fold = folded if atom.ignore_case else str
        numbers = {each for each in others if is_number(each)}
        texts = {fold(text) for each in others if (text := text_of(each)) is not None}
        for each in values:
            text = text_of(each)
            if text is not None and (fold(text) in texts or (is_number(each) and each in numbers)):
                return (each,)
        return None

    def _values_at(self, field: str) -> list[Any]:
        found = leaves_at(self._event, field, self._limits.max_values) or ()
        most = self._limits.max_value_bytes
        return [whole_text(cut(each, most)) if isinstance(each, str) else each for each in found]
