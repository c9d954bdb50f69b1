"""PRINTF: the conversions of Java's `Formatter`, in the locale US: %d %x %o %e %f %s %b %c %n and %%."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any, Final

from rmqio.sql.functions.registry import define
from rmqio.sql.values import ValueFailure, shown, text_of_double

_PART: Final = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(<]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")
_FLAGS: Final = {
    "d": "-+ 0,(", "x": "-#0", "o": "-#0", "e": "-#+ 0(", "f": "-#+ 0,(", "s": "-", "b": "-", "c": "-", "n": "",
    "%": "-",
}  # fmt: skip
"""The flags that each conversion takes."""
_TAKES: Final = {
    "d": "an integer", "x": "an integer", "o": "an integer", "c": "the code of a character, an integer",
    "e": "a DECIMAL, a FLOAT or a DOUBLE", "f": "a DECIMAL, a FLOAT or a DOUBLE",
}  # fmt: skip
_UPPER: Final = "SBCXE"
"""Conversions to upper case, which is the flag ^ here."""
_WITH_PRECISION: Final = "efsb"
_MOST_DIGITS: Final = 9
_LONGEST: Final = 1_000_000
"""Characters of a conversion's width, and digits of its precision."""


@dataclass(frozen=True, slots=True)
class Part:
    """A conversion of a format.

    Attributes:
      text: as it is written.
      start: its position in the format, from 1.
      kind: in lower case.
      argument: the position of its argument, from 0; None: it takes none.
    """

    text: str
    start: int
    kind: str
    flags: str
    width: int
    precision: int | None
    argument: int | None

    def failure(self, reason: str) -> ValueFailure:
        """Returns the error of this conversion."""
        return ValueFailure(f"PRINTF: {shown(self.text)} at character {self.start} of the format {reason}")

    def check(self, *, is_integer: bool, is_exact: bool, of: str) -> None:
        """Raises `ValueFailure` if the conversion does not take such an argument.

        Args:
          is_integer: it is one.
          is_exact: it is a number with a fraction, of whatever type.
          of: the argument's type, for the message.
        """
        if (self.kind in "dxoc" and not is_integer) or (self.kind in "ef" and not is_exact):
            raise self.failure(f"takes {_TAKES[self.kind]}, not {of}: use CAST, or %s")


@lru_cache(maxsize=256)
def parts_of(text: str) -> tuple[str | Part, ...]:
    """Returns the pieces of a format. Raises `ValueFailure` if it is not valid."""
    found: list[str | Part] = []
    at = ordinary = longest = 0
    last: int | None = None
    while (percent := text.find("%", at)) >= 0:
        found.append(text[at:percent])
        match = _PART.match(text, percent)
        if match is None:
            raise ValueFailure(
                f"PRINTF: {shown(text[percent : percent + 6])} at character {percent + 1} of the format is no "
                "conversion: write %% for a percent sign"
            )
        index, flags, width, precision, letter = match.groups()
        kind = letter.lower() if letter in _UPPER else letter
        argument: int | None = None
        if kind not in "n%":
            if "<" in flags:
                argument = last
            elif index is not None:
                argument = _number(index) - 1
            else:
                argument, ordinary = ordinary, ordinary + 1
            last = argument
        part = Part(
            match[0],
            percent + 1,
            kind,
            flags.replace("<", "") + ("^" if letter in _UPPER else ""),
            _number(width) if width else -1,
            _number(precision) if precision else None,
            argument,
        )
        _check(part, is_relative="<" in flags)
        longest += max(part.width, part.precision or 0)
        if longest > _LONGEST:
            raise part.failure(f"and those before it are longer than {_LONGEST} characters together")
        found.append(part)
        at = match.end()
    return *found, text[at:]


def _number(digits: str) -> int:
    """The number, or one that is as much too large: Python converts no more than 4,300 digits."""
    return int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS


def _check(part: Part, *, is_relative: bool) -> None:
    flags = part.flags.replace("^", "")
    if part.kind not in _FLAGS:
        raise part.failure("is not supported: there are %d, %x, %o, %e, %f, %s, %b, %c, %n and %%")
    if wrong := [each for each in flags if each not in _FLAGS[part.kind]]:
        raise part.failure(f"does not take the flag {wrong[0]!r}")
    if len(set(flags)) < len(flags):
        raise part.failure("has a flag twice")
    if ("-" in flags and "0" in flags) or ("+" in flags and " " in flags):
        raise part.failure("has flags that exclude each other")
    if part.width < 0 and ("-" in flags or "0" in flags):
        raise part.failure("needs a width for its flag")
    if part.precision is not None and part.kind not in _WITH_PRECISION:
        raise part.failure("takes no precision")
    if part.kind == "n" and part.width >= 0:
        raise part.failure("takes no width")
    if part.argument is None and is_relative:
        raise part.failure("has no argument before it")
    if part.argument is not None and part.argument < 0:
        raise part.failure("counts arguments from 1")
    if max(part.width, part.precision or 0) > _LONGEST:
        raise part.failure(f"is longer than {_LONGEST} characters")


def require_arguments(part: Part, count: int) -> None:
    """Raises `ValueFailure` if the argument of a conversion is not there."""
    if part.argument is not None and part.argument >= count:
        given = f"{count} argument{'s' * (count != 1)}" if count else "none"
        raise part.failure(f"takes argument {part.argument + 1}, and there {'are' if count > 1 else 'is'} {given}")


def printf(text: str | None, *arguments: Any) -> str | None:
    """Returns the format with its arguments. NULL is `null` there, and false for %b."""
    if text is None:
        return None
    made = []
    for each in parts_of(text):
        if isinstance(each, str):
            made.append(each)
            continue
        require_arguments(each, len(arguments))
        made.append(_formatted(each, None if each.argument is None else arguments[each.argument]))
    return "".join(made)


def _formatted(part: Part, value: Any) -> str:
    match part.kind:
        case "n":
            return "\n"
        case "%":
            return _justified("%", part)
        case "b":
            return _text("false" if value is None or value is False else "true", part)
    if value is None:
        return _text("null", part)
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    part.check(is_integer=is_integer, is_exact=isinstance(value, (float, Decimal)), of=_named(value))
    match part.kind:
        case "s":
            return _text(_plain(value), part)
        case "c":
            if not 0 <= value <= 0x10FFFF:
                raise part.failure(f"takes the code of a character, not {value}")
            return _text(chr(value), part)
        case "d":
            return _signed(str(abs(value)), part, is_negative=value < 0)
        case "x" | "o":
            return _unsigned(value, part)
    return _fraction(value, part)


def _named(value: Any) -> str:
    if isinstance(value, bool):
        return "a BOOLEAN"
    return {str: "text", int: "an integer", float: "a DOUBLE", Decimal: "a DECIMAL"}.get(type(value), "this")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return text_of_double(value)
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _text(text: str, part: Part) -> str:
    if part.precision is not None:
        text = text[: part.precision]
    return _justified(text.upper() if "^" in part.flags else text, part)


def _justified(text: str, part: Part) -> str:
    return text.ljust(part.width) if "-" in part.flags else text.rjust(max(part.width, 0))


def _unsigned(value: int, part: Part) -> str:
    """%x and %o of a negative number are those of its 64 bits."""
    text = format(value & (1 << 64) - 1, part.kind)
    prefix = {"x": "0x", "o": "0"}[part.kind] if "#" in part.flags else ""
    if "0" in part.flags:
        text = text.rjust(part.width - len(prefix), "0")
    text = prefix + text
    return _justified(text.upper() if "^" in part.flags else text, part)


def _fraction(value: float | Decimal, part: Part) -> str:
    exact = Decimal(repr(value)) if isinstance(value, float) else value  # the digits that Java takes, too
    is_negative = exact.is_signed()
    if not value and isinstance(value, float):
        exact = Decimal(0)
    if not exact.is_finite():
        name = "NaN" if exact.is_nan() else "Infinity"
        flags = part.flags.replace("0", "").replace(",", "")
        sign = "" if exact.is_nan() else _sign(flags, is_negative=is_negative)
        text = f"{sign}{name}{')' if sign == '(' else ''}"
        return _justified(text.upper() if "^" in flags else text, part)
    digits = 6 if part.precision is None else part.precision
    exact = exact.copy_abs()
    if part.kind == "f":
        context = Context(prec=max(exact.adjusted(), 0) + digits + 2, rounding=ROUND_HALF_UP)
        text = format(exact.quantize(Decimal((0, (1,), -digits)), context=context), "f")
    else:
        text = _scientific(exact, digits)
    if "#" in part.flags and not digits:
        text = text.replace("e", ".e") if part.kind == "e" else f"{text}."
    return _signed(text, part, is_negative=is_negative)


def _scientific(number: Decimal, digits: int) -> str:
    if not number:
        figure, power = f"{Decimal(0):.{digits}f}", number.adjusted()  # that of 0.00 is -2, as in Java
        return f"{figure}e{'-' if power < 0 else '+'}{abs(power):02}"
    rounded = Context(prec=digits + 1, rounding=ROUND_HALF_UP).plus(number)
    _, figures, _ = rounded.as_tuple()
    power = rounded.adjusted()
    text = "".join(map(str, figures)).ljust(digits + 1, "0")
    fraction = f".{text[1:]}" if digits else ""
    return f"{text[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02}"


def _sign(flags: str, *, is_negative: bool) -> str:
    if is_negative:
        return "(" if "(" in flags else "-"
    return "+" if "+" in flags else " " if " " in flags else ""


def _signed(text: str, part: Part, *, is_negative: bool) -> str:
    if "," in part.flags:
        whole, point, rest = text.partition(".")
        text = f"{int(whole):,}{point}{rest}"
    sign = _sign(part.flags, is_negative=is_negative)
    end = ")" if sign == "(" else ""
    if "0" in part.flags:
        text = text.rjust(part.width - len(sign) - len(end), "0")
    text = f"{sign}{text}{end}"
    return _justified(text.upper() if "^" in part.flags else text, part)


def check_format(text: str, arguments: Sequence[tuple[str, bool, bool]]) -> None:
    """Raises `ValueFailure` if a format does not take such arguments: of each its type, and as `Part.check` has it."""
    for each in parts_of(text):
        if isinstance(each, Part):
            require_arguments(each, len(arguments))
            if each.argument is not None:
                name, is_integer, is_exact = arguments[each.argument]
                if name != "NULL":
                    each.check(is_integer=is_integer, is_exact=is_exact, of=name)


define("PRINTF", "s [any] ... -> s", printf, is_strict=False)
