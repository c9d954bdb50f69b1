"""The tests IS JSON VALUE, SCALAR, ARRAY and OBJECT of text."""

from __future__ import annotations

from collections.abc import Callable

from rmqio.sql.functions import json_paths
from rmqio.sql.functions.registry import define


def _test(is_kind: Callable[[object], bool]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            return is_kind(json_paths.parsed(text))
        except json_paths.NotJson:
            return False

    return test


define("IS JSON VALUE", "s -> b", _test(lambda _: True))
define("IS JSON SCALAR", "s -> b", _test(lambda document: not isinstance(document, (dict, list))))
define("IS JSON ARRAY", "s -> b", _test(lambda document: isinstance(document, list)))
define("IS JSON OBJECT", "s -> b", _test(lambda document: isinstance(document, dict)))
