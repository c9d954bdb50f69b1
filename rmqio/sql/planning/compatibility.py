"""Whether a changed query can go on from the state of the one before it: two signatures are compared.

INSERTs are paired by table and by plan, so their order does not count. Some changes of a type fit the state: a value of
the narrower type has the same bytes in the wider one, and the same key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rmqio.sql.planning.signature import ADDED_LATER, KEY_TYPES, RESULT_TYPES, WATERMARK_DELAY, Signature, Step

_TYPED: Final = re.compile(
    r"(?P<name>.*?) ?(?P<type>(?:TINYINT|SMALLINT|INT|BIGINT|STRING|VARCHAR\(\d+\)|DECIMAL\(\d+, \d+\)"
    r"|(?:TIME|TIMESTAMP|TIMESTAMP_LTZ)\(\d\)))",
    re.DOTALL,
)
"""A column with a type that can become wider."""
_WINDOW_TIME: Final = re.compile(r"(?<![\w.])window_time\b")
_NAMES: Final = {KEY_TYPES[0]: "keys", **dict.fromkeys(RESULT_TYPES, "aggregates")}
"""Of keys that are lists of types, the key with what has these types; other lists of types have names, too."""
_INTEGERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")


@dataclass(slots=True)
class Comparison:
    """The differences between two signatures.

    Attributes:
      refused: a sentence for each difference that does not fit the state.
      accepted: a sentence for each one that does.
      order: for each INSERT of before that is still there, its position now.
    """

    refused: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    order: list[int] = field(default_factory=list)


def changes(before: Signature, now: Signature) -> list[str]:
    """Returns a sentence for each difference that does not fit the state; none: the state fits."""
    return compared(before, now).refused


def compared(before: Signature, now: Signature) -> Comparison:
    """Returns the differences. Keys that a signature of an earlier version lacks are not compared."""
    found = Comparison()
    pairs = _pairs(before, now)
    left = [each for number, each in enumerate(now) if number not in pairs.values()]
    for number, old in enumerate(before):
        if number in pairs:
            found.order.append(pairs[number])
            for fits, text in _differences(old, now[pairs[number]]):
                said = found.accepted if fits else found.refused
                if text not in said:  # both sides of a join can have the same windows
                    said.append(text)
            continue
        renamed = next((each for each in left if not any(_steps_differ(old, each))), None)
        if renamed is None:
            found.refused.append(f"INSERT INTO {old['into']} is missing")
        else:
            left.remove(renamed)
            found.refused.append(f"INSERT INTO {old['into']} has become INSERT INTO {renamed['into']}")
    found.refused += [f"INSERT INTO {each['into']} is new" for each in left]
    return found


def _pairs(before: Signature, now: Signature) -> dict[int, int]:
    """The position now of an INSERT of before: of those into one table, first the same one, then one that fits."""
    pairs: dict[int, int] = {}

    def pair(is_wanted: Any) -> None:
        for number, old in enumerate(before):
            if number in pairs:
                continue
            for other, new in enumerate(now):
                if other not in pairs.values() and old["into"] == new["into"] and is_wanted(old, new):
                    pairs[number] = other
                    break

    pair(lambda old, new: not any(True for _ in _differences(old, new)))
    pair(lambda old, new: all(fits for fits, _ in _differences(old, new)))
    pair(lambda old, new: [each["step"] for each in old["steps"]] == [each["step"] for each in new["steps"]])
    pair(lambda old, new: True)
    return pairs


def _steps_differ(old: dict[str, Any], new: dict[str, Any]) -> Iterator[bool]:
    for _ in _differences(old, new):
        yield True


def _differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """Whether the state fits, and what has changed."""
    head = f"INSERT INTO {now['into']}"
    old, new = before["steps"], now["steps"]
    kinds = [each["step"] for each in old]
    if kinds != [each["step"] for each in new]:
        yield False, f"{head}: it was {_listed(kinds)}, and is {_listed([each['step'] for each in new])}"
        return
    for one, other in zip(map(_instants, old), map(_instants, new), strict=True):
        for key in dict.fromkeys([*one, *other]):
            was, is_now = one.get(key), other.get(key)
            if was == is_now or (key in ADDED_LATER and None in (was, is_now)):
                continue
            if key in (*KEY_TYPES, *RESULT_TYPES) and _names_differ(one, other):
                continue  # another key or aggregate: its type says nothing more
            fits = key == WATERMARK_DELAY or _widens(was, is_now)
            note = " (it goes on)" if fits else ""
            yield fits, f"{head}: {one['step']}: {key} was {_shown(was)}, and is {_shown(is_now)}{note}"


def _instants(step: Step) -> Step:
    """The step with `window_time` as the TIMESTAMP that it was at first in all windows.

    In UTC, it has the same values as a TIMESTAMP_LTZ; another zone is a difference of the window.
    """
    found = dict(step)
    for key, value in step.items():
        if isinstance(value, list):
            names = step.get(_NAMES[key], value) if key in _NAMES else value
            found[key] = [
                str(each).replace("TIMESTAMP_LTZ", "TIMESTAMP") if _WINDOW_TIME.search(str(name)) else each
                for name, each in zip(names, value, strict=True)
            ]
    return found


def _names_differ(one: Step, other: Step) -> bool:
    return any(one.get(each) != other.get(each) for each in ("keys", "aggregates"))


def _widens(was: Any, is_now: Any) -> bool:
    """Whether these are the same columns, some of a wider type whose values have the same bytes."""
    if not (isinstance(was, list) and isinstance(is_now, list) and len(was) == len(is_now)):
        return False
    return all(one == other or _is_wider(str(one), str(other)) for one, other in zip(was, is_now, strict=True))


def _is_wider(was: str, is_now: str) -> bool:
    one, other = _TYPED.fullmatch(was), _TYPED.fullmatch(is_now)
    if one is None or other is None or one["name"] != other["name"]:
        return False
    old, new = one["type"], other["type"]
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) <= _INTEGERS.index(new)
    if old.startswith("VARCHAR") and new == "STRING":
        return True
    (kind, *sizes), (kind_now, *sizes_now) = (re.findall(r"\w+", each) for each in (old, new))
    if kind != kind_now or len(sizes) != len(sizes_now):
        return False
    return int(sizes[0]) <= int(sizes_now[0]) and sizes[1:] == sizes_now[1:]  # of a DECIMAL with the same scale


def _listed(kinds: list[str]) -> str:
    return " of ".join(reversed(kinds)) or "nothing"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return ", ".join(map(str, value)) or "nothing" if isinstance(value, list) else str(value)
