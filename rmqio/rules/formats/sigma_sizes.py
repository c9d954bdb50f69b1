"""The number of texts that a Sigma rule stands for. pySigma makes all of them before anything can be refused."""

from __future__ import annotations

import re
from typing import Any, Final

MOST_TEXTS: Final = 100_000
"""Texts of one rule: pySigma takes about 25 us and 2 KB for each."""
_DASH: Final = re.compile(r"\B[-/]\b")
_DASHES: Final = 5
_OFFSETS: Final = 3


def texts_of(detection: Any) -> int:
    """Returns how many texts the values of a detection become. The values have no circles."""
    found = 0
    todo: list[tuple[str, Any]] = [("", detection)]
    if isinstance(detection, dict):
        todo = [(str(name), each) for name, each in detection.items() if name != "condition"]
    while todo:
        key, value = todo.pop()
        if isinstance(value, dict):
            todo += ((str(name), each) for name, each in value.items())
        elif isinstance(value, list):
            todo += ((key, each) for each in value)
        else:
            found += _texts(key, value)
    return found


def _texts(key: str, value: Any) -> int:
    _, *modifiers = key.split("|")
    count = 1
    for each in modifiers:
        if each == "windash":
            count *= _DASHES ** len(_DASH.findall(str(value)))
        elif each == "base64offset":
            count *= _OFFSETS
    return count
