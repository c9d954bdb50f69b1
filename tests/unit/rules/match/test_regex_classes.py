"""Classes of characters and letters without case: Vectorscan, RE2 alone and Python's `re` find the same."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest

pytest.importorskip("re2", reason="the extra rules is not installed")
pytest.importorskip("hyperscan", reason="Vectorscan is not installed")

from rmqio.rules.errors import Limits
from rmqio.rules.ir import Atom, Kind
from rmqio.rules.match.atoms import BadAtom
from rmqio.rules.match.patterns import NoStore, PlainPatterns, VectorscanPatterns, compiled
from rmqio.rules.match.regexes import plan_of
from tests.helpers.rules.regexes import find_by_re

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
        wanted = {number for number, each in enumerate(patterns) if find_by_re(each, flags, text)}
        assert found == wanted, ({patterns[number] for number in found ^ wanted}, ascii(text))


@pytest.mark.parametrize(
    "braces", ["{007}", "{1,02}", "{02,}", "{00}", "{9999999999}", f"{{{'1' * 5000}}}", "{,3}", "{}"]
)
def test_braces_that_are_no_repeat_of_re2_are_text(braces: str) -> None:
    scanned, alone = _engines([f"x{braces}", f"(?:x{braces}|y)+z"], "")
    for text in (f"x{braces}", f"x{braces}z", "x" * 7, "xz", "x", "yz"):
        wanted = {n for n, is_found in enumerate((braces in text, f"x{braces}z" in text or text == "yz")) if is_found}
        assert {*alone.find(text)} == {*scanned.find(text)} == wanted, text[:20]


def test_letters_without_case_mean_the_same_with_and_without_vectorscan() -> None:
    drawn = random.Random(3)
    every = [chr(each) for each in (*range(0x80, 0xD800), *range(0xE000, 0x20000))]
    cased = [each for each in every if each.lower() != each or each.upper() != each or each.casefold() != each]
    newest = "\u10d0\u13a0\u1c90\ua7b2\uab70\u029d\U00010570"
    letters = [*drawn.sample(cased, 120), *newest]
    scanned, alone = _engines([*letters, *(f"(?i:x{each})" for each in letters)], "i")
    texts = {text for each in letters for text in (each, each.lower(), each.upper(), each.casefold(), each.swapcase())}
    for text in (*texts, *(f"X{each}" for each in texts)):
        found = {*alone.find(text)}
        assert {*scanned.find(text)} == found, ascii(text)
        if len(text) == 1:
            assert found == {n for n, each in enumerate(letters) if find_by_re(each, "i", text)}, ascii(text)


_FRAGMENTS = (
    *("a", "s", "K", "sk", "k.*s", ".*", ".+", ".*?", ".", "[^s]", "[a-t]", "[Kx]", r"\w", r"\W", r"\S", r"\d", r"\b"),
    *("(?:s|ak)", "(k)?", "s{2}", "[ks]+", ".{2}", r"\.", r"[.\]\\]", "(?i:K)", "(?-i:k)", "é", r"\x6b", r"\Qs.\E"),
    *("\u03c3", "\u00df", "[^\u03bc]", " ", "^", "$", r"\z"),
)
_LETTERS = "aAsSkKx\u017f\u212a.\n éÉ1ß\u1e9e\u03c2\u03a3\u00b5\u03bc\U0001f600"


@pytest.mark.parametrize("seed", range(15))
def test_random_expressions_mean_the_same_with_and_without_vectorscan(seed: int) -> None:
    drawn = random.Random(seed)
    flags = drawn.choice(("", "i", "i", "is", "im"))
    every = ["".join(drawn.choices(_FRAGMENTS, k=drawn.randrange(1, 6))) for _ in range(50)]
    patterns = [each for each in every if is_pattern(each, flags)]
    scanned, alone = _engines(patterns, flags)
    for _ in range(100):
        text = "".join(drawn.choices(_LETTERS, k=drawn.randrange(9)))
        found = [*scanned.find(text)]
        assert sorted(found) == sorted(alone.find(text)), ascii(text)
        wanted = [number for number, each in enumerate(patterns) if find_by_re(each, flags, text)]
        assert sorted(found) == wanted, ascii(text)


def is_pattern(pattern: str, flags: str) -> bool:
    try:
        plan_of(pattern, flags, 1 << 20, with_vectorscan=True)
    except BadAtom:
        return False
    return True


@pytest.mark.parametrize("text", ["task.-.kiss", "TASK KISS", "ta\u017f\u212a \u212ai\u017f\u017f", "task\n\u212aISS"])
def test_what_ignores_case_matches_as_re_says(text: str) -> None:
    patterns = ["task.*kiss", "(?i)task.*kiss", "task.+kiss", "a[s]k.*kis{2}", r"task\s"]
    scanned, _ = _engines(patterns, "i")
    wanted = [number for number, each in enumerate(patterns) if re.search(each, text, re.IGNORECASE)]
    assert wanted
    assert sorted(scanned.find(text)) == wanted


def test_expressions_that_ignore_case_compile_to_as_little_as_others() -> None:
    """Unicode's forms of `k` and `s` break texts into pieces: databases are larger, and take nine times as long."""
    drawn = random.Random(1)
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(120)]
    patterns = [".*".join(words[at : at + 3]) for at in range(0, 120, 3)]

    def size(flags: str) -> int:
        plans = [plan_of(each, flags, 1 << 20, with_vectorscan=True) for each in patterns]
        return len(compiled([each.encode() for each in patterns], [each.scan_flags or 0 for each in plans]))

    assert size("i") < 1.1 * size("")


@pytest.mark.exhaustive
def test_classes_mean_the_same_for_all_of_unicode() -> None:
    for flags in ("", "i"):
        scanned, alone = _engines([*_CLASSES[:6], "[^a]", r"[^\S]", r"x\b", "[[:alpha:]]", r"\p{L}", r"[à-ž]"], flags)
        for number in (*range(0xD800), *range(0xE000, 0x20000)):
            text = f"x{chr(number)}"
            assert {*scanned.find(text)} == {*alone.find(text)}, ascii(text)
