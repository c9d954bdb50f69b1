"""Passwords in the text of a script: errors and listings show `***` in their place, also if the option is misspelt."""

from __future__ import annotations

import difflib
import functools
import re
from typing import Final

HIDDEN: Final = "***"
_OPTION: Final = re.compile(
    r"(?<![\w.\-])(?P<quote>['\"`]?)(?P<key>[\w.\-]+)(?![\w.\-])(?P=quote)(?P<equals>\s*=)?"
    r"(?=\s*(?P<value>'(?:[^']|'')*(?:'|\Z)|\"[^\"]*(?:\"|\Z)|[^\s'\",;&()]+(?!\()))"
)
"""From the beginning of a word only: a long one that is searched from each of its letters takes minutes."""
_IN_URL: Final = re.compile(r"://[^\s:/'\"]*:(?P<value>[^\s'\"]+)@")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SECRETS: Final = ("password", "passwd", "passphrase", "secret", "token", "credential")
_SHORT: Final = frozenset(("pass", "pwd", "pw", "psw"))
_PLACES: Final = frozenset(("env", "file", "path", "location"))
"""The last words of options that say where a secret is."""
_SIMILAR: Final = 0.75
_LEAST: Final = 4
"""Characters of a secret that a message hides wherever they stand. Shorter ones only in quotes: they are everywhere."""


@functools.lru_cache(maxsize=1_000)
def is_secret(key: str) -> bool:
    """Returns whether the value of an option is a secret, by its name: `password`, `secretKey`, `pasword`."""
    words = [each.lower() for each in _WORD.findall(key)]
    if not words or words[-1] in _PLACES:
        return False
    if any(each in "".join(words) for each in _SECRETS) or not _SHORT.isdisjoint(words):
        return True
    return any(difflib.get_close_matches(each, _SECRETS, n=1, cutoff=_SIMILAR) for each in words)


def _is_secret_by_mistake(key: str, value: str) -> bool:
    """Whether the value is the secret in place of the environment variable that has it."""
    return key.lower().endswith(("_env", "-env")) and _VARIABLE.fullmatch(value) is None


@functools.lru_cache(maxsize=8)
def secrets_of(text: str) -> list[tuple[int, int]]:
    """Returns where secrets stand in a text, [start, end), without their quotes, in order."""
    found = [each.span("value") for each in _IN_URL.finditer(text)]
    for each in _OPTION.finditer(text):
        start, end = each.span("value")
        value, is_quoted = each["value"], each["value"][0] in "'\""
        if not is_quoted and "." in each["key"] + value and not each["quote"]:
            continue  # columns of a join
        hides = is_secret(each["key"]) or _is_secret_by_mistake(each["key"], value.strip("'\""))
        if hides and (each["equals"] or (each["quote"] and is_quoted)):
            found.append((start + is_quoted, end - (len(value) > 1 and value[-1] == value[0] and is_quoted)))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def masked(text: str) -> str:
    """Returns a text with `***` in place of its secrets."""
    for start, end in reversed(secrets_of(text)):
        text = text[:start] + HIDDEN + text[end:]
    return text


def masked_line(text: str, begin: int, end: int, start: int, stop: int) -> tuple[str, int, int]:
    """Returns a part of a text without secrets, and where a place in it begins and ends there.

    Args:
      begin, end: the part.
      start, stop: the place, by offsets in the text.
    """
    line, places = text[begin:end], [start - begin, stop - begin]
    for first, last in reversed(secrets_of(text)):
        first, last = max(first, begin) - begin, min(last, end) - begin
        if first < last:
            line = line[:first] + HIDDEN + line[last:]
            shift = len(HIDDEN) - (last - first)
            places = [
                each + shift if each >= last else min(each, first + len(HIDDEN)) if each > first else each
                for each in places
            ]
    return line, places[0], places[1]


def masked_message(message: str, text: str) -> str:
    """Returns a message about a text without the secrets of either."""
    for start, end in secrets_of(text):
        value = text[start:end]
        if len(value) >= _LEAST:
            message = message.replace(value, HIDDEN)
        elif value:
            message = message.replace(f"'{value}'", f"'{HIDDEN}'")
    return masked(message)
