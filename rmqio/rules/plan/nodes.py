"""Conditions over numbered atoms: constants folded, negation at the atoms only, equal kinds joined.

A node is True, False, the number of an atom, its complement (`~number`) for an atom that must not match, or `Join`.
Nothing here recurses: a condition may be as deep as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from rmqio.rules.ir import And, Atom, Condition, Not

T = TypeVar("T")


class Join(NamedTuple):
    """All of the nodes, or one of them or more."""

    is_and: bool
    nodes: tuple[Node, ...]


Node = bool | int | Join


def reduced(condition: Condition, number_of: Callable[[Atom], bool | int]) -> Node:
    """Returns the condition as a node.

    `number_of`: of an atom; True or False for one that always or never matches.
    """
    rest: list[tuple[Condition, bool, bool]] = [(condition, False, False)]
    done: list[Node] = []
    while rest:
        one, is_negated, is_open = rest.pop()
        if isinstance(one, Atom):
            number = number_of(one)
            if isinstance(number, bool):
                done.append(number != is_negated)
            else:
                done.append(~number if is_negated else number)
        elif isinstance(one, Not):
            rest.append((one.condition, not is_negated, False))
        elif not is_open:
            rest.append((one, is_negated, True))
            rest += [(each, is_negated, False) for each in reversed(one.conditions)]
        else:
            count = len(one.conditions)
            nodes = done[len(done) - count :]
            del done[len(done) - count :]
            done.append(joined(isinstance(one, And) != is_negated, nodes))
    return done[0]


def joined(is_and: bool, nodes: Iterable[Node]) -> Node:
    """Returns the conjunction or disjunction of nodes."""
    leaves: dict[int, None] = {}
    inner: list[Node] = []  # not compared with each other: that would walk them again at each level
    for node in nodes:
        if isinstance(node, bool):
            if node != is_and:
                return node
        elif isinstance(node, int):
            leaves[node] = None
        elif node.is_and == is_and:
            for each in node.nodes:
                if isinstance(each, int):
                    leaves[each] = None
                else:
                    inner.append(each)
        else:
            inner.append(node)
    if any(~leaf in leaves for leaf in leaves):
        return not is_and
    found = (*leaves, *inner)
    if not found:
        return is_and
    return found[0] if len(found) == 1 else Join(is_and, found)


def folded(node: Node, of_leaf: Callable[[Node], T], of_join: Callable[[bool, Sequence[T]], T]) -> T:
    """Computes a value from the leaves up."""
    rest: list[tuple[Node, bool]] = [(node, False)]
    done: list[T] = []
    while rest:
        one, is_open = rest.pop()
        if not isinstance(one, Join):
            done.append(of_leaf(one))
        elif not is_open:
            rest.append((one, True))
            rest += [(each, False) for each in reversed(one.nodes)]
        else:
            count = len(one.nodes)
            values = done[len(done) - count :]
            del done[len(done) - count :]
            done.append(of_join(one.is_and, values))
    return done[0]


def depth(node: Node) -> int:
    """How deep joins stand in joins."""
    return folded(node, lambda _: 0, lambda _, depths: 1 + max(depths))
