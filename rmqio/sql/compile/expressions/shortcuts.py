"""Shorter code for what is usual: LIKE with a known pattern, the time of a number, and CAST of digits to an integer."""

from __future__ import annotations

from rmqio.sql.compile.expressions.emitter import Emitter
from rmqio.sql.expressions import Constant, Conversion, Operation
from rmqio.sql.functions.operators import like_pattern
from rmqio.sql.functions.times import FIRST_INSTANT, LAST_INSTANT
from rmqio.sql.types import BITS

_DIGITS = {8: 2, 16: 4, 32: 9, 64: 18}
"""Digits of an integer that fits for sure."""


def shortcut(expression: Operation, arguments: list[str], out: Emitter) -> str | None:
    """Returns Python for an operation whose constants allow something shorter; None: there is nothing."""
    if expression.name == "TO_TIMESTAMP_LTZ":
        return _instant(expression, arguments[0], out)
    if expression.name != "LIKE" or not all(isinstance(each, Constant) for each in expression.arguments[1:]):
        return None
    texts = [each.value for each in expression.arguments[1:] if isinstance(each, Constant)]
    if None in texts:
        return None
    pattern, *escape = texts
    text = arguments[0]
    if not escape and "_" not in pattern:
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


def _instant(expression: Operation, number: str, out: Emitter) -> str | None:
    """Python for TO_TIMESTAMP_LTZ of a whole number; None: of anything else."""
    given, *precision = expression.arguments
    if given.type.kind not in BITS or len(precision) > 1 or not all(isinstance(each, Constant) for each in precision):
        return None
    micros = {3: 1000, 0: 1_000_000}.get(precision[0].value if precision else 3)  # type: ignore[attr-defined]
    if micros is None:
        return None
    name = out.name("m")
    return f"({name} if {FIRST_INSTANT} <= ({name} := {number} * {micros}) <= {LAST_INSTANT} else None)"


def cast_of_digits(expression: Conversion, operand: str, code: str) -> str:
    """Returns Python for a CAST: digits become an integer at once, and only other text takes the long way."""
    bits = BITS.get(expression.type.kind)
    if bits is None or expression.operand.type.kind != "VARCHAR":
        return code
    test = f"{operand}.isdigit() and {operand}.isascii() and len({operand}) <= {_DIGITS[bits]}"
    return f"(int({operand}) if {test} else {code})"
