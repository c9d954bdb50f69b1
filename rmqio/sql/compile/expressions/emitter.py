"""Writes the source of a function: lines, names for values, and what is computed already."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rmqio.sql.compile.expressions.places import Places
from rmqio.sql.expressions import Expr

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
