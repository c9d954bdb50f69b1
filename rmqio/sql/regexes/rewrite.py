"""A parsed regular expression as text for the engine `regex`.

The text of the user can mean other things there: `[[:alpha:]]` is a class, and `(a){e}` allows errors. So the text is
made of what `re` has understood, and has nothing that the two read differently.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any, Final

_constants: Final[Any] = importlib.import_module("re._constants")  # no public module has the tree
_CATEGORIES: Final = {
    _constants.CATEGORY_DIGIT: r"\d", _constants.CATEGORY_NOT_DIGIT: r"\D", _constants.CATEGORY_SPACE: r"\s",
    _constants.CATEGORY_NOT_SPACE: r"\S", _constants.CATEGORY_WORD: r"\w", _constants.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_PLACES: Final = {
    _constants.AT_BEGINNING: "^", _constants.AT_BEGINNING_STRING: r"\A", _constants.AT_BOUNDARY: r"\b",
    _constants.AT_NON_BOUNDARY: r"\B", _constants.AT_END: "$", _constants.AT_END_STRING: r"\Z",
}  # fmt: skip
_REPEATS: Final = {_constants.MAX_REPEAT: "", _constants.MIN_REPEAT: "?", _constants.POSSESSIVE_REPEAT: "+"}
_LETTERS: Final = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.ASCII: "a", re.UNICODE: "u"}
_GLOBAL: Final = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.ASCII


def rewritten(tree: Any) -> str:
    """Returns the expression, with its flags. Its groups have numbers, and no names."""
    return f"(?{_flags(tree.state.flags & _GLOBAL)}){_text_of(tree)}"


def _text_of(tree: Iterable[tuple[Any, Any]]) -> str:
    return "".join([_item(code, argument) for code, argument in tree])


def _item(code: Any, argument: Any) -> str:
    if code is _constants.LITERAL:
        return _literal(argument)
    if code is _constants.NOT_LITERAL:
        return f"[^{_literal(argument)}]"
    if code is _constants.ANY:
        return "."
    if code is _constants.IN:
        return f"[{''.join([_member(*each) for each in argument])}]"
    if code is _constants.AT:
        return _PLACES[argument]
    if code in _REPEATS:
        least, most, body = argument
        limit = "" if most is _constants.MAXREPEAT else int(most)
        return f"(?:{_text_of(body)}){{{int(least)},{limit}}}{_REPEATS[code]}"
    if code is _constants.BRANCH:
        return f"(?:{'|'.join(map(_text_of, argument[1]))})"
    if code is _constants.SUBPATTERN:
        number, added, removed, body = argument
        inner = _text_of(body)
        if added or removed:
            inner = f"(?{_flags(added)}{'-' if removed else ''}{_flags(removed)}:{inner})"
        return f"(?:{inner})" if number is None else f"({inner})"
    if code is _constants.ATOMIC_GROUP:
        return f"(?>{_text_of(argument)})"
    if code in (_constants.ASSERT, _constants.ASSERT_NOT):
        direction, body = argument
        sign = "=" if code is _constants.ASSERT else "!"
        return f"(?{'<' if direction < 0 else ''}{sign}{_text_of(body)})"
    if code is _constants.GROUPREF:
        return f"(?:\\{argument})"
    if code is _constants.GROUPREF_EXISTS:
        number, yes, no = argument
        return f"(?({number}){_text_of(yes)}{'|' + _text_of(no) if no else ''})"
    if code is _constants.FAILURE:
        return "(?!)"
    raise NotImplementedError(f"re has {code}")


def _literal(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\U{code:08x}"


def _member(code: Any, argument: Any) -> str:
    if code is _constants.NEGATE:
        return "^"
    if code is _constants.RANGE:
        return f"{_literal(argument[0])}-{_literal(argument[1])}"
    return _CATEGORIES[argument] if code is _constants.CATEGORY else _literal(argument)


def _flags(given: int) -> str:
    return "".join(letter for flag, letter in _LETTERS.items() if given & flag)
