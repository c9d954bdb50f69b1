"""Shorter code for what is usual: LIKE with a pattern that is known, and CAST of digits to an integer."""

from __future__ import annotations

from rmqio.sql.compile.emitter import Emitter
from rmqio.sql.expressions import Constant, Conversion, Operation
from rmqio.sql.functions.operators import like_pattern
from rmqio.sql.types import BITS

_DIGITS = {8: 2, 16: 4, 32: 9, 64: 18}
"""Digits of an integer that fits for sure."""


def shortcut(expression: Operation, arguments: list[str], out: Emitter) -> str | None:
    """Returns Python for an operation whose constants allow something shorter; None: there is nothing."""
    if expression.name != "LIKE" or not all(isinstance(each, Constant) for each in expression.arguments[1:]):
        return None
    texts = [each.value for each in expression.arguments[1:] if isinstance(each, Constant)]
    if None in texts:
        return None
    pattern, *escape = texts
    text = arguments[0]
    if not escape and not set(pattern) & {"_", "\\"}:
        parts = pattern.split("%")
        match parts:
            case [whole]:
                return f"({text} == {whole!r})"
            case [start, ""]:
                return f"{text}.startswith({start!r})"
            case ["", end]:
                return f"{text}.endswith({end!r})"
            case ["", middle, ""]:
                return f"({middle!r} in {text})"
    matches = out.constant(like_pattern(pattern, *escape).fullmatch, "p")
    return f"({matches}({text}) is not None)"


def cast_of_digits(expression: Conversion, operand: str, code: str) -> str:
    """Returns Python for a CAST: digits become an integer at once, and only other text takes the long way."""
    bits = BITS.get(expression.type.kind)
    if bits is None or expression.operand.type.kind != "VARCHAR":
        return code
    test = f"{operand}.isdigit() and {operand}.isascii() and len({operand}) <= {_DIGITS[bits]}"
    return f"(int({operand}) if {test} else {code})"
