"""Walks over trees of conditions, without recursion: the depth of conditions is not limited."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from rmqio.rules.ir import And, Atom, Condition, Not, Or

ANYTHING: Final = And(())
NOTHING: Final = Or(())


def rebuilt(condition: Condition, change: Callable[[Atom], Condition]) -> Condition:
    """Returns the condition with each atom replaced, and made simpler where that is obvious.

    Lists of one condition are that condition, lists in lists of the same kind are one list, and what always or never
    matches (`ANYTHING`, `NOTHING`) is left out where it changes nothing.
    """
    root: list[Condition] = []
    todo: list[tuple[Condition, list[Condition], list[Condition] | None]] = [(condition, root, None)]
    while todo:
        one, into, parts = todo.pop()
        if isinstance(one, Atom):
            into.append(change(one))
        elif parts is not None:
            into.append(negation(parts[0]) if isinstance(one, Not) else _listed(one, parts))
        else:
            fresh: list[Condition] = []
            todo.append((one, into, fresh))
            inner = (one.condition,) if isinstance(one, Not) else one.conditions
            todo += [(each, fresh, None) for each in reversed(inner)]
    return root[0]


def simplified(condition: Condition) -> Condition:
    """Returns the same condition, simpler: see `rebuilt`."""
    return rebuilt(condition, lambda atom: atom)


def negation(condition: Condition) -> Condition:
    """Returns NOT of a condition; NOT of NOT is the condition."""
    if isinstance(condition, Not):
        return condition.condition
    if condition == ANYTHING:
        return NOTHING
    return ANYTHING if condition == NOTHING else Not(condition)


def all_of(*conditions: Condition) -> Condition:
    """Returns AND of conditions that are simple already."""
    return _listed(ANYTHING, conditions)


def any_of(*conditions: Condition) -> Condition:
    """Returns OR of conditions that are simple already."""
    return _listed(NOTHING, conditions)


def _listed(given: And | Or | Not, parts: tuple[Condition, ...] | list[Condition]) -> Condition:
    kind, neutral, final = (And, ANYTHING, NOTHING) if isinstance(given, And) else (Or, NOTHING, ANYTHING)
    flat: list[Condition] = []
    for each in parts:
        if isinstance(each, kind):
            flat += each.conditions
        elif isinstance(each, (And, Or)) and not each.conditions:
            return final
        else:
            flat.append(each)
    if len(flat) == 1:
        return flat[0]
    return kind(tuple(flat)) if flat else neutral


def unordered(condition: Condition) -> bytes:
    """Returns a digest that is the same for conditions that differ only in the order and the repeats of their parts."""
    done: list[bytes] = []
    todo: list[tuple[Condition, bool]] = [(condition, False)]
    while todo:
        one, is_open = todo.pop()
        if isinstance(one, Atom):
            done.append(_digest(text_of(one).encode("utf-8", "surrogatepass")))
            continue
        inner = (one.condition,) if isinstance(one, Not) else one.conditions
        if not is_open:
            todo.append((one, True))
            todo += [(each, False) for each in inner]
        else:
            parts = sorted({*done[len(done) - len(inner) :]})
            del done[len(done) - len(inner) :]
            done.append(_digest(type(one).__name__.encode() + b"".join(parts)))
    return done[0]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def text_of(condition: Condition) -> str:
    """Returns a text that is the same for equal conditions and for no others."""
    found: list[str] = []
    todo: list[Condition | str] = [condition]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, Atom):
            found.append(repr((one.field, one.kind.value, one.value, one.ignore_case, "".join(sorted(one.flags)))))
        elif isinstance(one, Not):
            todo += [")", one.condition, "not("]
        else:
            todo += [")", *reversed(one.conditions), "and(" if isinstance(one, And) else "or("]
    return "".join(found)
