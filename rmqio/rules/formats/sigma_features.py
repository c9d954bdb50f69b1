"""What the specification of Sigma has and pySigma lacks: detections, so that pySigma's parser takes them.

Modifiers of our own have names that no rule can have, since pySigma's table of modifiers is one for the whole process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import product
from typing import Any, Final

from sigma.exceptions import SigmaConditionError, SigmaValueError
from sigma.modifiers import SigmaExpandModifier, SigmaModifier, SigmaValueModifier, SigmaWideModifier, modifier_mapping
from sigma.types import (
    Placeholder,
    SigmaExpansion,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaString,
    SigmaType,
    type_map,
)

_SELECTOR: Final = re.compile(r"\b(1|any|all)\s+of\s+([A-Za-z0-9_*-]*-[A-Za-z0-9_*-]*)")
_DASH: Final = re.compile(r"\B[-/]\b")
_DASHES: Final = ("-", "/", "\u2013", "\u2014", "\u2015")
_ESCAPED: Final = re.compile(r"\\[\\%]")
_PERCENT: Final = "\uffff"
"""It stands for an escaped percent sign while pySigma looks for placeholders. It is no character of Unicode."""


class _WindowsDash(SigmaValueModifier[SigmaString, SigmaExpansion]):
    """`windash` without pySigma's bound of three places: the number of texts has a bound of its own."""

    def modify(self, val: SigmaString) -> SigmaExpansion:
        parts = val.replace_with_placeholder(_DASH, "_windash").s
        is_dash = [isinstance(each, Placeholder) and each.name == "_windash" for each in parts]
        made: list[SigmaType] = []
        for some in product(*(_DASHES if one else (each,) for each, one in zip(parts, is_dash, strict=True))):
            text = SigmaString()
            text.s = list(some)
            made.append(text)
        return SigmaExpansion(made)


class _Expand(SigmaExpandModifier):
    """`expand`, after which escaped percent signs are plain ones."""

    def modify(self, val: SigmaString | SigmaRegularExpression) -> SigmaString | SigmaRegularExpression:
        made = super().modify(val)
        text = made.regexp if isinstance(made, SigmaRegularExpression) else made
        text.s = [each.replace(_PERCENT, "%") if isinstance(each, str) else each for each in text.s]
        return made


class _Whole(int):
    """An integer of more than 53 bits, of which pySigma's numbers would be a float."""


def _number(value: _Whole) -> SigmaNumber:
    made = SigmaNumber(0)
    made.number = int(value)
    return made


type_map[_Whole] = _number  # type: ignore[assignment]
_OURS: Final[dict[str, type[SigmaModifier[Any, Any]]]] = {
    "utf16le": SigmaWideModifier,
    "windash": _WindowsDash,
    "expand": _Expand,
}
_NAMES: Final = {name: f"{name} of rmqio" for name in _OURS}
MODIFIERS: Final = sorted({*modifier_mapping, *_OURS})
"""All that there are, for rules."""
modifier_mapping.update({_NAMES[name]: modifier for name, modifier in _OURS.items()})


_TEXT: Final = "a text"
_NUMBER: Final = "a number"
_TAKEN: Final = {
    _TEXT: (
        "contains", "startswith", "endswith", "re", "cidr", "base64", "base64offset", "wide", "utf16", "utf16be",
        "utf16le", "windash", "expand", "cased", "fieldref",
    ),
    _NUMBER: ("lt", "lte", "gt", "gte"),
    "true or false": ("exists",),
}  # fmt: skip
"""What the first modifier of a field takes; those that are not here take any value."""


def name_of(modifier: str) -> str:
    """Returns the name that rules have for a class of a modifier."""
    return next((name for name, each in (modifier_mapping | _OURS).items() if each.__name__ == modifier), modifier)


def understood(detection: Any, *, is_filter: bool) -> Any:
    """Returns a detection that pySigma takes. Raises `SigmaError` for what it would take as something else."""
    if not isinstance(detection, dict):
        return detection
    names = [name for name in detection if name != "condition" and not (is_filter and name == "rules")]
    made = {name: _items(name, value) if name in names else value for name, value in detection.items()}
    if "condition" in made:
        condition = made["condition"]
        texts = condition if isinstance(condition, list) else [condition]
        if not texts or any(each is None or not str(each).strip() for each in texts):
            raise SigmaConditionError("'condition' is empty: it says which detections must hold")
        texts = [_condition(str(each), names) for each in texts]
        made["condition"] = texts if isinstance(condition, list) else texts[0]
    return made


def item_of(key: str, value: Any) -> tuple[str, Any]:
    """Returns a field, with its modifiers, and the value, so that pySigma takes them. Raises `SigmaError`."""
    field, *modifiers = key.split("|")
    _require_some(key, value)
    values = value if isinstance(value, list) else [value]
    if "fieldref" in modifiers:
        if "cased" in modifiers:
            raise SigmaValueError("fieldref ignores case: cased with it is not supported")
        values = [str(each) if type(each) in (int, float) else each for each in values]
        if any(isinstance(each, str) and not each.strip() for each in values):
            raise SigmaValueError(f"{key!r} names no field: its value is empty")
    for each in values:
        _require_kind(key, modifiers, each)
    values = [*map(_exact, values)]
    if "expand" in modifiers:
        values = [_ESCAPED.sub(_unescaped, each) if isinstance(each, str) else each for each in values]
    return "|".join((field, *(_NAMES.get(each, each) for each in modifiers))), values


def keyword_of(name: str, value: Any) -> Any:
    """Returns a keyword of a detection so that pySigma takes it. Raises `SigmaError`."""
    _require_kind(name, (), value)
    return _exact(value)


def _require_some(key: str, value: Any) -> None:
    if value == []:
        raise SigmaValueError(f"{key!r} has an empty list, and no value is in it: leave it out, or say null")


def _require_kind(key: str, modifiers: Sequence[str], value: Any) -> None:
    """Raises `SigmaValueError` for a value that a field with these modifiers does not take."""
    if isinstance(value, (dict, list, set)):
        kind = "a list in a list" if isinstance(value, list) else "an object"
        one = "a value is a text, a number, true, false or null, or a list of these"
        raise SigmaValueError(f"{key!r} has {kind}: {one}")
    if value is not None and not isinstance(value, (str, int, float)):
        raise SigmaValueError(f"{key!r} has {value}, a {type(value).__name__} of YAML: write it as a text, in quotes")
    first = "re" if "re" in modifiers else modifiers[0] if modifiers else ""
    wanted = next((kind for kind, names in _TAKEN.items() if first in names), "")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_it = {_TEXT: isinstance(value, str), _NUMBER: is_number, "": True}.get(wanted, isinstance(value, bool))
    if not is_it:
        shown = repr(value) if isinstance(value, str) else json.dumps(value)
        hint = f": write '{shown}'" if wanted == _TEXT and value is not None else ""
        raise SigmaValueError(f"{key!r} takes {wanted}, not {shown}{hint}")


def _items(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return dict(item_of(str(key), each) for key, each in value.items())
    if isinstance(value, list):
        _require_some(name, value)  # a list of keywords, or of items
        return [_items(name, each) for each in value]
    return keyword_of(name, value)


def _exact(value: Any) -> Any:
    return _Whole(value) if type(value) is int and value.bit_length() > 53 else value


def _condition(text: str, names: Sequence[str]) -> str:
    """The condition with the names that a pattern with dashes stands for: pySigma's patterns have none."""

    def named(found: re.Match[str]) -> str:
        pattern = re.compile(".*".join(map(re.escape, found[2].split("*"))))
        some = [each for each in names if pattern.fullmatch(each) and (found[2][0] == "_" or each[0] != "_")]
        if not some:
            raise SigmaConditionError(f"Selector '{found[1]} of {found[2]}' doesn't match any detection")
        return f"({(' and ' if found[1] == 'all' else ' or ').join(some)})"

    return _SELECTOR.sub(named, text)


def _unescaped(found: re.Match[str]) -> str:
    return _PERCENT if found[0] == r"\%" else found[0]
