"""Rows that become several, in a plan: UNNEST and table functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rmqio.sql.expressions import Expr
from rmqio.sql.planning.plan import Relation
from rmqio.sql.text import text_of
from rmqio.sql.user.definition import UserCall

ELEMENT: Final = "element"
ROW: Final = "row"
ENTRY: Final = "entry"
TUPLE: Final = "tuple"


@dataclass(frozen=True, slots=True)
class Shape:
    """How the elements of a list become columns.

    Attributes:
      kind: an `ELEMENT` is one column; of a `ROW` the fields, which are NULL if it is NULL itself; of an `ENTRY` of a
        map key and value; a `TUPLE` is never NULL.
      has_ordinality: the last column is the element's number.
      is_outer: a row without elements stays, with NULLs.
    """

    kind: str
    has_ordinality: bool = False
    is_outer: bool = False


@dataclass(frozen=True, slots=True)
class Expand(Relation):
    """Each row of the input, with each element of a list that is computed of it: the input's columns, and its own.

    Attributes:
      rows: the list, or a map.
      shape: how its elements become columns.
    """

    input: Relation
    rows: Expr
    shape: Shape

    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Relation, ...]) -> Relation:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class SetRows(Expand):
    """Each row of the input once per grouping set: the input's columns, and the number of the set.

    `sets`: the keys of each, as text.
    """

    sets: tuple[str, ...] = ()


def described(expand: Expand, names: Sequence[str]) -> list[str]:
    """Returns the lines of EXPLAIN. `names`: the columns of the input."""
    if isinstance(expand, SetRows):
        return [f"One row for each of {len(expand.sets)} grouping sets, append-only", f"sets {', '.join(expand.sets)}"]
    text = text_of(expand.rows, names)
    is_call = isinstance(expand.rows, UserCall)
    made = expand.fields[len(expand.input.fields) :]
    given = ", ".join(f"{each.name} {each.type.text}" for each in made)
    lines = [f"{'Call' if is_call else 'Unnest'} {text} for each row, append-only", f"gives {given}"]
    if expand.shape.is_outer:
        lines.append("a row that gives none stays, with NULLs")
    return lines
