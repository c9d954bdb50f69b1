"""Regular expressions of rules by `re`: written so that they mean what docs/rules/semantics.md says.

Python's own flags cannot say it: classes such as `\\w` are ASCII, but case is that of Unicode, also in classes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_TOKEN: Final = re.compile(
    r"(?P<quoted>\\Q.*?(?:\\E|\Z))|(?P<class>\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\])"
    r"|(?P<flags>\(\?[ims]*(?:-[ims]+)?\))|(?P<opened>\((?:\?[ims]*(?:-[ims]+)?:|\?P?<\w+>)?)|(?P<closed>\))|(?P<or>\|)"
    r"|(?P<repeat>(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??)"
    r"|(?P<escape>\\x\{[0-9a-fA-F]+\}|\\x[0-9a-fA-F]{2}|\\.)|(?P<text>.)",
    re.DOTALL,
)
_MEMBER: Final = re.compile(
    r"\[:(\^?)([a-z]+):\]|(\\[dDsSwW])|((?:\\x\{[^}]*\}|\\x..|\\.|[^\\]))(?:-((?:\\x\{[^}]*\}|\\x..|\\.|[^\\])))?",
    re.DOTALL,
)
_SETS: Final = {
    "d": "0-9", "s": r"\t-\r ", "w": "0-9A-Za-z_", "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f",
    "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~",
    "punct": r"!-/:-@\[-`{-~", "space": r"\t-\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_PLACES: Final = {"b": r"(?a:\b)", "B": r"(?!(?a:\b))", "A": r"\A", "z": r"\Z", "^": r"\A|^(?!\Z)", "$": "$"}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_UNCASED: Final = str.maketrans("\u0130\u0131", "\ufdd0\ufdd1")
"""Letters that `re` takes for an `i` without case, and Unicode does not."""


def find_by_re(pattern: str, flags: str, text: str) -> bool:
    """Whether `re` finds a pattern."""
    return _compiled(pattern, flags).search(text.translate(_UNCASED)) is not None


@lru_cache(4_096)
def _compiled(pattern: str, flags: str) -> re.Pattern[str]:
    number = re.NOFLAG
    for flag in flags:
        number |= {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}[flag]
    return re.compile(_written(pattern), number)


def _written(pattern: str) -> str:
    made = []
    flags = [""]  # of each open group, those that hold from their place to its end, also behind each `|`
    for found in _TOKEN.finditer(pattern):
        kind, token = found.lastgroup, found[0]
        if kind == "flags":
            flags[-1] += f"{token[:-1]}:"
            token = f"{token[:-1]}:"
        elif kind == "opened":
            flags.append("")
            token = token if token.endswith(":") else "("
        elif kind == "closed":
            token += ")" * flags.pop().count("(")
        elif kind == "or":
            token = f"{')' * flags[-1].count('(')}|{flags[-1]}"
        elif kind == "quoted":
            token = "".join(map(_escaped, token[2:].removesuffix(r"\E")))
        elif kind == "class":
            token = _class(token)
        elif kind == "escape" and token[1].lower() in "dsw":
            token = _class(f"[{token}]")
        elif token in ("^", "$") or (kind == "escape" and token[1] in "bBAz"):
            token = f"(?:{_PLACES[token[-1]]})"
        elif kind == "escape" or (kind == "text" and token != "."):
            token = _escaped(_character(token))
        made.append(token)
    return "".join(made) + ")" * flags[0].count("(")


def _class(token: str) -> str:
    """A class as alternatives: a negated one within it is without the letters that are members without case."""
    is_negated = token[1] == "^"
    members, alternatives = "", []
    for negated, posix, perl, first, last in _MEMBER.findall(token[2 if is_negated else 1 : -1]):
        if posix or perl:
            name = _SETS[posix or perl[1].lower()]
            if negated or (perl and perl[1].isupper()):
                alternatives.append(f"[^{name}]")
            else:
                members += name
        elif not last:
            members += _escaped(_character(first))
        else:
            low, high = _character(first), _character(last)
            members += f"{_escaped(low)}-{_escaped(high)}"
            members += "".join(_escaped(each) for each in "\u0130\u0131" if low <= each <= high)
    alternatives += [f"[{members}]"] if members else []
    text = "|".join(alternatives)
    return rf"(?:(?!{text})[\s\S])" if is_negated else f"(?:{text})"


def _character(token: str) -> str:
    if token[0] != "\\":
        return token
    if token[1] == "x":
        return chr(int(token[2:].strip("{}"), 16))
    if token[1].isalnum() and token[1] not in _CONTROLS:
        raise ValueError(f"{token!r} has no meaning here")
    return _CONTROLS.get(token[1], token[1])


def _escaped(character: str) -> str:
    return f"\\U{ord(character.translate(_UNCASED)):08x}"
