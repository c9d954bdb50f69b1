"""Places of errors: which expression a line of a compiled function computes.

A row that fails is caught in the function, and the line that it was caught at says which expression failed. So rows
without errors pay nothing for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rmqio.sql.expressions import Expr, Operation
from rmqio.sql.planning.plan import Field
from rmqio.sql.text import text_of
from rmqio.sql.user.definition import UserCall
from rmqio.sql.values import ValueFailure

_LONGEST: Final = 200
"""Characters of an expression in an error."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that an expression reads, as SQL: their names, or what a step before has computed of others.

    Attributes:
      given: names, or expressions of the columns before.
      before: the columns that these expressions read.
    """

    given: Sequence[str | Expr]
    before: Columns | None = None

    def names(self) -> list[str]:
        """Returns the columns as SQL."""
        below = [] if self.before is None else self.before.names()
        return [each if isinstance(each, str) else shortened(text_of(each, below)) for each in self.given]

    def with_names(self, names: Sequence[str]) -> Columns:
        """Returns these columns and further ones."""
        return Columns([*self.given, *names], self.before)


def placed(error: Exception, number: int, count: int) -> Exception:
    """Returns the error of a row with its number among those of the statement, from 1; of the only one as it is."""
    return error if count == 1 else ValueFailure(f"row {number} of the statement: {error}")


_Place = tuple[Expr | None, Columns | None, str]


class Places:
    """The expressions that the lines of a function compute, of which statement.

    Attributes:
      statement: the name of the statement at this point.
      columns: those that expressions read at this point; None: nothing is computed here.
      current: the expression that is being added.
    """

    def __init__(self) -> None:
        self.statement = ""
        self.columns: Columns | None = None
        self.current: Expr | None = None
        self._lines: list[_Place] = []
        self._by_number: dict[int, _Place] = {}

    def add_line(self) -> None:
        """Notes that the next line computes the current expression of the current columns."""
        self._lines.append((self.current, self.columns, self.statement))

    def number(self, lines: Sequence[str]) -> None:
        """Numbers the lines as Python does, when all of them are there."""
        number = 1
        for line, place in zip(lines, self._lines, strict=True):
            count = line.count("\n") + 1
            self._by_number.update(dict.fromkeys(range(number, number + count), place))
            number += count

    def located(self, error: ValueFailure) -> ValueFailure:
        """Returns the error with the expression as SQL, and the statement. The function has just caught it."""
        trace = error.__traceback__
        place = None if trace is None else self._by_number.get(trace.tb_lineno)
        if (
            place is None or place[1] is None
        ):  # a column that cannot be decoded: it is named, and no statement computes it
            return error
        expression, columns, statement = place
        reason = str(error)
        if expression is not None and columns is not None and not _names_itself(expression):
            reason = f"{shortened(text_of(expression, columns.names()))}: {reason}"
        return ValueFailure(f"{reason} ({statement})" if statement else reason).with_traceback(trace)


def _names_itself(expression: Expr) -> bool:
    """Whether errors of the expression name it: a function in Python, or one of SQL/JSON with its path."""
    return isinstance(expression, UserCall) or (
        isinstance(expression, Operation) and expression.name.startswith(("JSON VALUE", "JSON QUERY", "JSON EXISTS"))
    )


def names_of(fields: Sequence[Field]) -> list[str]:
    """Returns the names of columns; of several with one name, with their tables."""
    counts = Counter(each.name for each in fields)
    return [f"{each.table}.{each.name}" if counts[each.name] > 1 and each.table else each.name for each in fields]


def shortened(text: str) -> str:
    """Returns the text, of a bounded length."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
