"""The check of a rule: generated Python over the set of atoms that match."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, Final

from rmqio.rules.plan.nodes import Join, Node, depth
from rmqio.rules.plan.reasons import Reasons

Check = Callable[[Set[int], Callable[[int], bool]], bool]
"""Called with the atoms that match, and with a function that tells for the others, such as those of two fields."""
_DEEPEST: Final = 20
"""Python's parser has a bound on brackets in brackets."""


def check_of(node: Node, is_late: Callable[[int], bool]) -> Check:
    """Returns the check.

    `is_late`: whether an atom is not in the set, and to be asked for.
    """
    if depth(node) > _DEEPEST:
        reasons = Reasons(node, is_late)
        return lambda hits, late: reasons.of(hits, late, 1) is not None
    constants: dict[str, Any] = {}
    text = _text(node, is_late, constants)
    made: Check = eval(f"lambda h, t: {text}", {"__builtins__": {}, **constants})  # of numbers and sets of numbers only
    return made


def _text(node: Node, is_late: Callable[[int], bool], constants: dict[str, Any]) -> str:
    if isinstance(node, bool):
        return str(node)
    if isinstance(node, int):
        number = node if node >= 0 else ~node
        text = f"t({number})" if is_late(number) else f"{number} in h"
        return f"(not {text})" if node < 0 else f"({text})"
    return _join(node, is_late, constants)


def _join(node: Join, is_late: Callable[[int], bool], constants: dict[str, Any]) -> str:
    """Atoms first, as sets; then the joins; what must be asked for last."""
    plain = frozenset(each for each in node.nodes if isinstance(each, int) and each >= 0 and not is_late(each))
    not_these = frozenset(~each for each in node.nodes if isinstance(each, int) and each < 0 and not is_late(~each))
    late = [each for each in node.nodes if isinstance(each, int) and is_late(each if each >= 0 else ~each)]
    parts: list[str] = []
    for members, all_of, none_of in ((plain, node.is_and, False), (not_these, not node.is_and, True)):
        if len(members) > 2:
            name = f"s{len(constants)}"
            constants[name] = members
            test = f"{name} <= h" if all_of else f"not {name}.isdisjoint(h)"
            parts.append(f"not ({test})" if none_of else f"({test})")
        else:
            parts += [_text(~each if none_of else each, is_late, constants) for each in sorted(members)]
    parts += [_text(each, is_late, constants) for each in node.nodes if isinstance(each, Join)]
    parts += [_text(each, is_late, constants) for each in late]
    return f"({(' and ' if node.is_and else ' or ').join(parts)})"
