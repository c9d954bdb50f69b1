"""GROUPING SETS, ROLLUP and CUBE: a row is in one group of each set, and NULL stands for the keys that a set lacks.

A row becomes one per set (`SetRows`), with the number of the set as a column, which is a key of the group, too. So
equal sets give their rows twice, and a NULL of the data is another group than that of a set without the key.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from rmqio.sql import types
from rmqio.sql.errors import Refusal, Span
from rmqio.sql.expressions import SET_NUMBER, Conditional, Constant, Expr, InputRef, Membership, Operation
from rmqio.sql.planning.expanding import ELEMENT, SetRows, Shape
from rmqio.sql.planning.plan import Field, Relation
from rmqio.sql.syntax import nodes

MOST_SETS: Final = 128
"""A row becomes one per set."""
_NUMBER: Final = types.INTEGER.nullable(False)
_FLAG: Final = types.BOOLEAN.nullable(False)
_BITS: Final = types.BIGINT.nullable(False)

Nodes = tuple[nodes.Expression, ...]


def parted(items: Sequence[nodes.Expression]) -> tuple[list[nodes.Expression], list[Nodes]]:
    """Returns the plain items of GROUP BY, and the sets beside them; without any, GROUP BY is a plain one."""
    plain = [each for each in items if not _is_sets(each)]
    others = [_sets(each) for each in items if _is_sets(each)]
    if not others:
        return plain, []
    if _count(others) > MOST_SETS:
        _refuse(f"GROUP BY has more than {MOST_SETS} sets, for each of which every row is counted", items[0].span)
    return plain, [tuple(itertools.chain(*each)) for each in itertools.product(*others)]


def _count(others: Sequence[Sequence[Nodes]]) -> int:
    count = 1
    for each in others:
        count *= len(each)
    return count


def _is_sets(node: nodes.Expression) -> bool:
    return isinstance(node, nodes.GroupingSets) or _is_empty(node) or _named(node) in ("ROLLUP", "CUBE")


def _is_empty(node: nodes.Expression) -> bool:
    return isinstance(node, nodes.Row) and not node.items


def _named(node: nodes.Expression) -> str:
    is_call = isinstance(node, nodes.Call) and node.function is None
    return node.name.text.upper() if is_call else ""  # type: ignore[attr-defined]


def _sets(node: nodes.Expression) -> list[Nodes]:
    if isinstance(node, nodes.GroupingSets):
        return [one for each in node.items for one in _sets(each)]
    name = _named(node)
    if name not in ("ROLLUP", "CUBE"):
        return [node.items if isinstance(node, nodes.Row) else (node,)]
    assert isinstance(node, nodes.Call)
    if node.is_star or node.quantifier is not None or not node.arguments:
        _refuse(f"{name} takes columns, and columns together in parentheses: {name}(a, (b, c))", node.span)
    parts = [each.items if isinstance(each, nodes.Row) else (each,) for each in node.arguments]
    if name == "ROLLUP":
        return [tuple(itertools.chain(*parts[:count])) for count in range(len(parts), -1, -1)]
    if 1 << len(parts) > MOST_SETS:
        _refuse(f"CUBE of {len(parts)} columns has {1 << len(parts)} sets: at most {MOST_SETS} are allowed", node.span)
    chosen = itertools.product((True, False), repeat=len(parts))
    return [tuple(itertools.chain(*itertools.compress(parts, each))) for each in chosen]


@dataclass
class GroupingSets:
    """The sets of a GROUP BY.

    Attributes:
      sets: the positions of the keys of each.
      key: the position of the key that is the number of the set.
    """

    sets: list[frozenset[int]]
    key: int

    def rows(self, source: Relation, names: Sequence[str]) -> SetRows:
        """Returns the rows of the source, each once per set. `names`: of the keys, for EXPLAIN."""
        numbers = tuple(Constant(_NUMBER, each) for each in range(len(self.sets)))
        texts = tuple(f"({', '.join(names[key] for key in sorted(each))})" for each in self.sets)
        array = Operation(types.array_of(_NUMBER, False), "ARRAY", numbers)
        return SetRows((*source.fields, Field(SET_NUMBER, _NUMBER)), source, array, Shape(ELEMENT), texts)

    def value(self, position: int, key: Expr, number: Expr) -> Expr:
        """Returns what a key is in the rows of all sets. `number`: that of the set."""
        lacking = self._lacking(position)
        if not lacking or position == self.key:
            return key
        kind = key.type.nullable()
        return Conditional(kind, (Membership(_FLAG, number, lacking), Constant(kind, None), key))

    def ref(self, position: int, key: Expr) -> InputRef:
        """Returns the column of a key in the group."""
        is_nullable = key.type.is_nullable or (position != self.key and bool(self._lacking(position)))
        return InputRef(key.type.nullable(is_nullable), position)

    def _lacking(self, position: int) -> tuple[Constant, ...]:
        return tuple(Constant(_NUMBER, at) for at, each in enumerate(self.sets) if position not in each)

    def bits(self, keys: Sequence[int]) -> Expr:
        """Returns GROUPING of keys: a bit for each, the last one the lowest; 1: the set lacks it."""
        by_bits: dict[int, list[Constant]] = {}
        for number, each in enumerate(self.sets):
            found = 0
            for key in keys:
                found = found << 1 | (key not in each)
            by_bits.setdefault(found, []).append(Constant(_NUMBER, number))
        *others, last = by_bits.items()
        parts: list[Expr] = []
        for found, numbers in others:
            parts += [Membership(_FLAG, InputRef(_NUMBER, self.key), tuple(numbers)), Constant(_BITS, found)]
        otherwise = Constant(_BITS, last[0])
        return Conditional(_BITS, (*parts, otherwise)) if parts else otherwise


def no_bits() -> Expr:
    """Returns GROUPING of keys of a GROUP BY without sets."""
    return Constant(_BITS, 0)


def _refuse(message: str, span: Span) -> NoReturn:
    raise Refusal(message, span)
