"""Classes of characters and letters without case: Vectorscan, RE2 alone and Python's `re` find the same."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest

pytest.importorskip("re2", reason="the extra rules is not installed")
pytest.importorskip("hyperscan", reason="Vectorscan is not installed")

from rmqio.rules.ir import Atom, Kind
from rmqio.rules.limits import Limits
from rmqio.rules.match.patterns import NoStore, PlainPatterns, VectorscanPatterns
from rmqio.rules.match.reference import find_by_re

_POSIX = ("alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
          "word", "xdigit")  # fmt: skip
_CLASSES = [
    *(r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", r"\v", r"\f", r"\a", r"\x0b", ".", "[a-z]", "[^a]"),
    *(r"[\s]", r"[^\s]", r"[\S]", r"[^\S]", r"[\w\s]", r"[^\w\s]", r"[^\D]", r"[\W\S]", r"\b", r"x\b"),
]
_NAMED = [f"[{before}[:{negated}{name}:]]" for name in _POSIX for before in ("", "^", r"\s") for negated in ("", "^")]
_NAMED.append(r"[\s-z]")  # a hyphen behind a class, which `re` refuses
_SPECIAL = "\u0130\u0131\u017f\u212a\u2028\u2029\u3000\u0660\ufeff\u200b\u1680\u0345\u01c5\U0001f600"
_TEXTS = [text for each in (*map(chr, range(256)), *_SPECIAL) for text in (each, f"A{each}Z")]


def _engines(patterns: Sequence[str], flags: str) -> tuple[VectorscanPatterns, PlainPatterns]:
    atoms = [(number, Atom("a", Kind.REGEX, each, "i" in flags, flags)) for number, each in enumerate(patterns)]
    return VectorscanPatterns(atoms, NoStore(), Limits()), PlainPatterns(atoms)


@pytest.mark.parametrize("flags", ["", "i", "ims"])
def test_classes_mean_the_same_for_every_character(flags: str) -> None:
    patterns = [around.format(each) for each in (*_CLASSES, *_NAMED) for around in ("{}", "A{}Z")]
    scanned, alone = _engines(patterns, flags)
    for text in _TEXTS:
        found = {*scanned.find(text)}
        assert found == {*alone.find(text)}, ascii(text)
        if "i" in flags and re.search("[\u0130\u0131\u017f\u212a]", text):
            continue  # `re` folds them differently from class to class
        for number, each in enumerate(patterns):
            if "[:" not in each and r"\s-z" not in each:
                assert (number in found) == find_by_re(each, flags, text), (each, ascii(text))


def test_letters_without_case_mean_the_same_with_and_without_vectorscan() -> None:
    drawn = random.Random(3)
    every = [chr(each) for each in (*range(0x80, 0xD800), *range(0xE000, 0x20000))]
    cased = [each for each in every if each.lower() != each or each.upper() != each or each.casefold() != each]
    newest = "\u10d0\u13a0\u1c90\ua7b2\uab70\u029d\U00010570"
    letters = [*drawn.sample(cased, 120), *newest]
    scanned, alone = _engines([*letters, *(f"(?i:x{each})" for each in letters)], "i")
    texts = {text for each in letters for text in (each, each.lower(), each.upper(), each.casefold(), each.swapcase())}
    for text in (*texts, *(f"X{each}" for each in texts)):
        assert {*scanned.find(text)} == {*alone.find(text)}, ascii(text)


@pytest.mark.exhaustive
def test_classes_mean_the_same_for_all_of_unicode() -> None:
    for flags in ("", "i"):
        scanned, alone = _engines([*_CLASSES[:6], "[^a]", r"[^\S]", r"x\b", "[[:alpha:]]", r"\p{L}", r"[à-ž]"], flags)
        for number in (*range(0xD800), *range(0xE000, 0x20000)):
            text = f"x{chr(number)}"
            assert {*scanned.find(text)} == {*alone.find(text)}, ascii(text)
