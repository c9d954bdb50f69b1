"""Writes the source of a function: lines, names for values, what is computed already, and where an error comes from."""

from __future__ import annotations

import ast
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqio.sql.expressions import Expr, Operation, noted
from rmqio.sql.functions import registry
from rmqio.sql.planning.plan import Field
from rmqio.sql.text import text_of
from rmqio.sql.user.definition import UserCall
from rmqio.sql.values import ValueFailure

# Places of errors: which expression a line of a compiled function computes.
#
# A row that fails is caught in the function, and the line that it was caught at says which expression failed. So rows
# without errors pay nothing for it.

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


# Finds the expressions that give the same value each time.


def is_pure(expression: Expr) -> bool:
    """Returns whether it is the same whenever it is computed."""
    functions = registry.load()

    def of(each: Expr, parts: list[bool]) -> bool:
        if isinstance(each, UserCall):
            return each.function.is_deterministic and all(parts)
        if isinstance(each, Operation) and each.name in functions:
            return functions[each.name].is_pure and all(parts)
        return all(parts)

    return noted(expression, "is_pure", of)  # type: ignore[no-any-return]


UNSET: Final = object()
"""The value of a name that is not computed yet."""


class Emitter:
    """Collects lines of Python. A value that was computed in a block is known in that block and in those within it.

    Attributes:
      nulls: the name of the list that takes errors of values that are NULL instead; empty: such a row fails.
      places: which expressions the lines compute.
      getters: names of the functions that look rows up.
      lazy: names of expressions that are computed when they are needed first, in whichever block; until then they hold
        `UNSET`.
    """

    def __init__(self) -> None:
        self.lines: Final[list[str]] = []
        self.constants: Final[dict[str, Any]] = {}
        self._indent = 0
        self._count = 0
        self._known: list[dict[Expr, str]] = [{}]
        self.lazy: dict[Expr, str] = {}
        self.getters: Final[dict[Any, str]] = {}
        self.places: Final = Places()
        self.nulls = ""
        self._names: dict[tuple[str, Any], str] = {}

    @property
    def depth(self) -> int:
        """Returns how many blocks are open."""
        return self._indent

    def line(self, text: str) -> None:
        """Adds a line to the block."""
        self.lines.append("    " * self._indent + text)
        self.places.add_line()

    @contextlib.contextmanager
    def computing(self, expression: Expr) -> Iterator[None]:
        """Notes that the lines of the block compute the expression: an error in one of them names it."""
        before, self.places.current = self.places.current, expression
        yield
        self.places.current = before

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Begins a block, as in `with emitter.block("if x:")`."""
        self.line(head)
        self._indent += 1
        self._known.append({})
        begun = len(self.lines)
        yield
        if len(self.lines) == begun:
            self.line("pass")
        self._known.pop()
        self._indent -= 1

    def name(self, prefix: str = "t") -> str:
        """Returns a name that nothing else has."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, value: Any, prefix: str = "k") -> str:
        """Returns a name of the function's globals for a value."""
        # 1.0 and 1.00, 0.0 and -0.0 are equal for Python only.
        key: tuple[str, Any] = (prefix, id(value) if callable(value) else (type(value), repr(value)))
        if found := self._names.get(key):
            return found
        name = self.name(prefix)
        self.constants[name] = value
        self._names[key] = name
        return name

    def expression(self, source: str, constants: Mapping[str, Any]) -> str:
        """Returns an expression of Python that uses constants by name, under names that nothing else has."""
        taken = {each for each, value in constants.items() if self.constants.get(each, value) is not value}
        names = {each: self.name(f"{each}_") if each in taken else each for each in constants}
        self.constants.update({names[each]: value for each, value in constants.items()})
        if not taken:
            return source
        tree = ast.parse(source, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = names.get(node.id, node.id)
        return ast.unparse(tree)

    def find(self, expression: Expr) -> str | None:
        """Returns the name that holds the expression's value; None: it is not computed yet."""
        for known in reversed(self._known):
            if expression in known:
                return known[expression]
        return None

    def remember(self, expression: Expr, name: str) -> str:
        """Keeps the name of a value that the block has computed, and returns it."""
        self._known[-1][expression] = name
        return name

    def forget_inputs(self) -> None:
        """Forgets everything that was computed: columns have another meaning from here on."""
        self._known = [{} for _ in self._known]
        self.lazy = {}

    def known(self) -> list[dict[Expr, str]]:
        """Returns what is known here, for `restore`."""
        return [dict(each) for each in self._known]

    def restore(self, known: list[dict[Expr, str]]) -> None:
        """Knows again what was known there."""
        self._known = [dict(each) for each in known]

    def function(self, name: str) -> Any:
        """Compiles the lines and returns the function that they define."""
        source = "\n".join(self.lines)
        self.places.number(self.lines)
        scope = dict(self.constants)
        exec(compile(source, f"<sql {name}>", "exec"), scope)
        return scope[name]
