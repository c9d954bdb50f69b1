"""Functions of the user's own, as a plan knows them. Their code never travels: workers import it by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rmqio.sql.expressions import Expr
from rmqio.sql.types import SqlType

SCALAR: Final = "scalar"
TABLE: Final = "table"
AGGREGATE: Final = "aggregate"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. If its type cannot be NULL, the function is not called with one."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function that CREATE FUNCTION has named.

    Attributes:
      name: as it is written there.
      kind: `SCALAR`, `TABLE` or `AGGREGATE`.
      module, attribute: where Python finds it.
      folders: where modules are looked for, beside Python's own path.
      parameters: in order.
      required: how many arguments a call has at least.
      is_variadic: the last parameter takes any number of arguments.
      result: the type of a value; of a table function, the ROW of its columns.
      is_deterministic: equal calls give equal results, so that one is enough.
    """

    name: str
    kind: str
    module: str
    attribute: str
    folders: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    required: int
    is_variadic: bool
    result: SqlType
    is_deterministic: bool

    def usage(self) -> str:
        """Returns how it is called: `clean(text STRING, [n BIGINT])`."""
        shown = []
        for position, each in enumerate(self.parameters):
            text = f"{each.name} {each.type.text}"
            is_last = position == len(self.parameters) - 1
            is_repeated = self.is_variadic and is_last
            shown.append(f"{text}, ..." if is_repeated else text if position < self.required else f"[{text}]")
        return f"{self.name}({', '.join(shown)})"

    def parameter(self, position: int) -> Parameter:
        """Returns the parameter of an argument."""
        return self.parameters[min(position, len(self.parameters) - 1)]


@dataclass(frozen=True, slots=True)
class UserCall(Expr):
    """A call. The type of a table function's call is an array of its rows. `shown`: as SQL writes it, for messages."""

    function: UserFunction
    arguments: tuple[Expr, ...]
    shown: str = field(default="", compare=False)

    def children(self) -> tuple[Expr, ...]:
        return self.arguments

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return UserCall(self.type, self.function, children, self.shown)
