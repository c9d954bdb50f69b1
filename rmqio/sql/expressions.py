"""Expressions whose names and types are known: what the planner moves around and the compiler compiles.

They are values: two that are equal compute the same, so that they are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from rmqio.sql import types
from rmqio.sql.errors import Refusal
from rmqio.sql.types import SqlType

SET_NUMBER: Final = "$set"
"""The name of the column with the number of a row's grouping set."""
IN_QUERY: Final = " IN (query)"
"""How the name of a column ends that says whether a query has a row with a value."""


class _Noted:
    """What is known of an expression, in slots that are no fields: neither is it compared, nor does it travel."""

    __slots__ = ("hashed", "inputs", "is_pure")
    hashed: int
    inputs: frozenset[int]
    is_pure: bool


@dataclass(frozen=True, slots=True)
class Expr(_Noted):
    """An expression and its type."""

    type: SqlType

    def __hash__(self) -> int:  # kept: of a chain of operators, each is asked for its own, and has all before it
        try:
            return self.hashed
        except AttributeError:
            found = hash(tuple([getattr(self, each) for each in self.__match_args__]))
            object.__setattr__(self, "hashed", found)
            return found

    def children(self) -> tuple[Expr, ...]:
        """Returns the expressions that this one is made of."""
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """Returns the same expression of others."""
        return self


@dataclass(frozen=True, slots=True)
class InputRef(Expr):
    """A column of the input, by position. Two of one position are equal, whether or not they can be NULL."""

    index: int

    def __hash__(self) -> int:
        return hash(self.index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputRef) and self.index == other.index


@dataclass(frozen=True, slots=True)
class Constant(Expr):
    """A value that is known."""

    value: Any

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))

    def __eq__(self, other: object) -> bool:  # 1 = 1.0 = True in Python
        return isinstance(other, Constant) and (self.type, repr(self.value)) == (other.type, repr(other.value))


@dataclass(frozen=True, slots=True)
class Operation(Expr):
    """A function or an operator, by its name in `functions`. Its arguments have the types that it takes."""

    name: str
    arguments: tuple[Expr, ...]

    __hash__ = Expr.__hash__

    def children(self) -> tuple[Expr, ...]:
        return self.arguments

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, arguments=children)


@dataclass(frozen=True, slots=True)
class Logical(Expr):
    """AND or OR, by three-valued logic. The second operand is computed only if the first one leaves it open."""

    operator: str
    operands: tuple[Expr, ...]

    __hash__ = Expr.__hash__

    def children(self) -> tuple[Expr, ...]:
        return self.operands

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, operands=children)


@dataclass(frozen=True, slots=True)
class Not(Expr):
    """NOT; NULL stays NULL."""

    operand: Expr

    __hash__ = Expr.__hash__

    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, operand=children[0])


@dataclass(frozen=True, slots=True)
class Is(Expr):
    """`IS value`, where the value is None, True or False. Never NULL."""

    operand: Expr
    value: bool | None

    __hash__ = Expr.__hash__

    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, operand=children[0])


@dataclass(frozen=True, slots=True)
class Conditional(Expr):
    """CASE: conditions and results by turns, and the result of ELSE. Only what is needed is computed."""

    parts: tuple[Expr, ...]

    __hash__ = Expr.__hash__

    def children(self) -> tuple[Expr, ...]:
        return self.parts

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, parts=children)


@dataclass(frozen=True, slots=True)
class Conversion(Expr):
    """CAST to the type; with `is_try`, NULL where it fails."""

    operand: Expr
    is_try: bool = False

    __hash__ = Expr.__hash__

    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, operand=children[0])


@dataclass(frozen=True, slots=True)
class NotNull(Expr):
    """The operand, which must not be NULL: it is for a column that is NOT NULL."""

    operand: Expr
    column: str

    __hash__ = Expr.__hash__

    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, operand=children[0])


@dataclass(frozen=True, slots=True)
class Membership(Expr):
    """`operand IN (constants)`: NULL if the operand is NULL, or if it is not found and NULL is one of them."""

    operand: Expr
    values: tuple[Constant, ...]

    def __hash__(self) -> int:  # of thousands of constants, the first ones tell enough
        return hash((self.type, self.operand, len(self.values), self.values[:4]))

    def __reduce__(self) -> tuple[Any, ...]:  # an object for each constant takes several times as long
        kinds = tuple(each.type for each in self.values)
        return _membership, (self.type, self.operand, kinds, tuple(each.value for each in self.values))

    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, operand=children[0])


def _membership(kind: SqlType, operand: Expr, kinds: tuple[SqlType, ...], values: tuple[Any, ...]) -> Membership:
    return Membership(kind, operand, tuple(map(Constant, kinds, values)))


def is_processing_time(expression: Expr) -> bool:
    """Returns whether it is the time of the worker: PROCTIME()."""
    return isinstance(expression, Operation) and expression.name in ("PROCTIME", "TIME OF ARRIVAL")


def walk(expression: Expr) -> Iterator[Expr]:
    """Yields the expression and all that it is made of."""
    pending = [expression]
    while pending:
        each = pending.pop()
        yield each
        pending += each.children()


def transform(expression: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Returns the expression with each part replaced by what `change` makes of it, from the leaves up."""
    children = expression.children()
    changed = []
    for each in children:  # a loop, and no generator: Python 3.12 counts calls from C
        changed.append(transform(each, change))
    is_same = all(new is old for new, old in zip(changed, children, strict=True))
    return change(expression if is_same else expression.with_children(tuple(changed)))


def noted(expression: Expr, name: str, of: Callable[[Expr, list[Any]], Any]) -> Any:
    """Returns what `of` makes of an expression and of the results of its parts. Each is computed once, and kept.

    Args:
      name: of the slot that keeps it.
    """
    pending = [expression]
    while pending:
        each = pending[-1]
        parts = each.children()
        if left := [part for part in parts if not hasattr(part, name)]:
            pending += left
            continue
        if not hasattr(each, name):
            object.__setattr__(each, name, of(each, [getattr(part, name) for part in parts]))
        pending.pop()
    return getattr(expression, name)


def inputs(expression: Expr) -> frozenset[int]:
    """Returns the positions of the columns that it reads."""

    def of(each: Expr, parts: list[frozenset[int]]) -> frozenset[int]:
        own = (each.index,) if isinstance(each, InputRef) else ()
        return parts[0] if len(parts) == 1 and not own else frozenset(own).union(*parts)

    return noted(expression, "inputs", of)  # type: ignore[no-any-return]


def shifted(expression: Expr, by: int) -> Expr:
    """Returns the expression for an input whose columns stand that much further right."""
    return transform(
        expression, lambda each: replace(each, index=each.index + by) if isinstance(each, InputRef) else each
    )


def substituted(expression: Expr, columns: tuple[Expr, ...]) -> Expr:
    """Returns the expression with its columns replaced by the expressions that compute them."""
    return transform(expression, lambda each: columns[each.index] if isinstance(each, InputRef) else each)


def conjuncts(expression: Expr | None) -> list[Expr]:
    """Returns the conditions that must all be true for this one to be true."""
    if expression is None:
        return []
    if isinstance(expression, Logical) and expression.operator == "AND":
        return [each for operand in expression.operands for each in conjuncts(operand)]
    return [expression]


def all_of(conditions: list[Expr]) -> Expr | None:
    """Returns their conjunction; None: there are none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return Logical(
        types.BOOLEAN.nullable(types.any_nullable(each.type for each in conditions)), "AND", tuple(conditions)
    )


# How deep expressions are: what is too deep for a worker is refused here, and what travels to one is flat.

DEEPEST: Final = 1000
"""Levels of an expression. Each takes several calls of Python, and a worker's thread has the stack for these."""
MOST_BLOCKS: Final = 25
"""Levels of AND, OR and CASE within each other. Each is a block of Python or two, of which there are 100 at most."""


def leaves_first(*roots: Any) -> list[Expr]:
    """Returns the expressions in a tree of dataclasses and tuples, each after those that it is made of.

    Pickled in this order, no expression is deep: those within it are there already.
    """
    found: list[Expr] = []
    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(each, False) for each in roots]
    while stack:
        node, is_left = stack.pop()
        if is_left:
            found.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, Expr):
                stack.append((node, True))
            stack.extend((each, False) for each in _parts(node))
    return found


def _parts(node: Any) -> Iterator[Any]:
    if isinstance(node, Expr):
        yield from node.children()
    elif isinstance(node, tuple):
        yield from node
    elif is_dataclass(node) and not isinstance(node, type):
        for each in fields(node):
            yield getattr(node, each.name, None)


def check_depth(plan: Any) -> None:
    """Raises `Refusal` if an expression of the plan is too deep."""
    depths: dict[int, int] = {}
    blocks: dict[int, int] = {}
    for each in leaves_first(plan):
        children = each.children()
        depth = depths[id(each)] = 1 + max((depths[id(child)] for child in children), default=0)
        if depth > DEEPEST:
            raise Refusal(
                f"an expression is nested more than {DEEPEST} levels deep: shorten it. Each operator of a chain, "
                "such as a || b || c, is a level",
                None,
            )
        opens = isinstance(each, (Logical, Conditional))
        block = blocks[id(each)] = max(
            (blocks[id(child)] + (opens and not _is_else_case(each, child)) for child in children), default=0
        )
        if block > MOST_BLOCKS:
            raise Refusal(f"AND, OR and CASE are nested more than {MOST_BLOCKS} levels deep", None)


def _is_else_case(each: Expr, child: Expr) -> bool:
    """Whether the child is one more WHEN."""
    return isinstance(each, Conditional) and isinstance(child, Conditional) and child is each.parts[-1]
