"""One event that may match rules: answers for the atoms that no index finds, and the values that met atoms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rmqio.rules.ir import Atom, Kind
from rmqio.rules.match.lookup import Lookup
from rmqio.rules.plan.atoms import condition_text
from rmqio.rules.plan.plan import Plan
from rmqio.rules.plan.values import everything, flat, is_number, text_of, values_at

_SHOWN: Final = 256

Predicates = Mapping[int, Callable[[Mapping[str, Any]], Any]]


class Evidence:
    """It remembers what it has been asked."""

    def __init__(
        self, plan: Plan, lookups: Mapping[str | None, Lookup], predicates: Predicates, event: Mapping[str, Any]
    ) -> None:
        self._plan = plan
        self._lookups = lookups
        self._predicates = predicates
        self._event = event
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
                answer = self._equal_value(atom) is not None
            self._known[number] = answer
        return answer

    def shown(self, number: int) -> tuple[str, str, Any]:
        """The field, the condition, and the first value that met it."""
        atom, first = self._plan.atoms[number], self._plan.shown[number]
        if atom.kind is Kind.SQL:
            return "", condition_text(first), True
        if atom.kind is Kind.FIELD:
            value = (self._equal_value(atom) or (None,))[0]
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
            values = everything(self._event) if field is None else values_at(self._event, field) or ()
            for each in (leaf for value in values for leaf in flat(value)):
                for number in atoms_of(each):
                    met.setdefault(number, each)
        return met

    def _equal_value(self, atom: Atom) -> tuple[Any] | None:
        """The first value of a field that is one of another field's, too."""
        others = [each for value in values_at(self._event, str(atom.value)) or () for each in flat(value)]
        if not others:
            return None
        fold = str.casefold if atom.ignore_case else str
        numbers = {each for each in others if is_number(each)}
        texts = {fold(text) for each in others if (text := text_of(each)) is not None}
        for value in values_at(self._event, str(atom.field)) or ():
            for each in flat(value):
                text = text_of(each)
                if text is not None and (fold(text) in texts or (is_number(each) and each in numbers)):
                    return (each,)
        return None
