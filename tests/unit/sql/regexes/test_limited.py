"""Regular expressions with a time limit: both engines give the same, and `re` gets only what takes few steps."""

from __future__ import annotations

import importlib
import re
import warnings
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("regex", reason="a time limit needs the extra 'sql'")

from rmqio.sql import regexes
from rmqio.sql.regexes import steps_of
from rmqio.sql.values import ValueFailure

_PARSER: Any = importlib.import_module("re._parser")

ATOMS = st.sampled_from([
    "a", "b", "c", "ab", "A", ".", "[ab]", "[^a]", "[a-c]", r"\w", r"\W", r"\d", r"\s", r"\.", "-", " ", r"\b", r"\B",
    "^", "$", r"\A", r"\Z", "é", "{", "{e}", "[[:alpha:]]", "[é-ü]", r"[\w-]", r"\n", "(?:)", r"[^\s-]", "]",
])  # fmt: skip
REPEATS = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}", "{2,}", "{0}", "*+", "++", "?+"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.sampled_from(["({})", "(?:{})", "(?={})", "(?!{})", "(?>{})", "(?i:{})", "(?s:{})", "(?-i:{})"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(group, inner).map(lambda each: each[0].replace("{}", each[1])),
        st.tuples(inner, REPEATS).map(lambda each: f"(?:{each[0]}){each[1]}"),
        st.tuples(ATOMS, REPEATS).map("".join),
        inner.map(lambda each: rf"({each})-\1"),
        inner.map(lambda each: f"(a)?{each}(?(1)b|c)"),
        inner.map(lambda each: f"{each}(?<=a)"),
    )


PATTERNS = st.tuples(st.sampled_from(["", "", "(?i)", "(?m)", "(?s)"]), st.recursive(ATOMS, _larger, max_leaves=6)).map(
    "".join
)
TEXTS = st.text(st.sampled_from("aabbcA-é{}e. \n1]:"), max_size=9)


def _tree(pattern: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # [[ could become a set of sets
        try:
            re.compile(pattern, re.ASCII)
            return _PARSER.parse(pattern, re.ASCII)
        except re.error:
            return None


def _found(pattern: regexes.Pattern, text: str) -> list[Any]:
    """Places and groups of matches, and what replaces them."""
    first, whole = pattern.search(text), pattern.fullmatch(text)
    return [
        first and (first.span(), first.groups()),
        whole and whole.groups(),
        [(each.span(), each.groups()) for each in pattern.all(text)],
        pattern.replace(text, r"\1"),
    ]


@given(PATTERNS, TEXTS)
@settings(max_examples=600, deadline=None)
def test_both_engines_give_the_same(pattern: str, text: str) -> None:
    assume(_tree(pattern) is not None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = regexes.compiled(pattern, re.ASCII, pattern, timeout_s=20.0)
        by_re, by_regex = ours, regexes.compiled(pattern, re.ASCII, pattern, timeout_s=20.0)
        by_re._longest, by_regex._longest = 1000, 0
        assert _found(by_regex, text) == _found(by_re, text)


class _Counter:
    """A matcher that tries all ways in order, as `re` does, and counts the characters that it compares."""

    def __init__(self, tree: Any, text: str) -> None:
        self._text = text
        self._tree = tree
        self.steps = 0

    def search(self, most: int) -> bool:
        """Returns whether all starts were tried in so many steps."""
        try:
            for start in range(len(self._text) + 1):
                if self._sequence(list(self._tree), start, lambda at: True):
                    break
        except OverflowError:
            return False
        return self.steps <= most

    def _sequence(self, items: list[Any], at: int, then: Any) -> bool:
        if not items:
            return bool(then(at))
        (code, argument), *rest = items
        return self._item(str(code), argument, at, lambda end: self._sequence(rest, end, then))

    def _item(self, code: str, argument: Any, at: int, then: Any) -> bool:
        if code in ("MAX_REPEAT", "MIN_REPEAT"):
            return self._repeat(argument, at, then, code == "MIN_REPEAT", 0)
        if code == "BRANCH":
            return any(self._sequence(list(each), at, then) for each in argument[1])
        if code == "SUBPATTERN":
            return self._sequence(list(argument[3]), at, then)
        if code == "ASSERT":
            return self._sequence(list(argument[1]), at, lambda end: True) and then(at)
        if code == "AT":
            return at == len(self._text) and then(at)  # $ and \Z in these patterns
        self.steps += 1
        if self.steps > 200_000:
            raise OverflowError
        return at < len(self._text) and self._is(code, argument, self._text[at]) and then(at + 1)

    def _repeat(self, repeat: Any, at: int, then: Any, is_lazy: bool, done: int) -> bool:
        least, most, body = repeat

        def once(end: int) -> bool:
            return (end > at or done < least) and self._repeat(repeat, end, then, is_lazy, done + 1)

        def again() -> bool:
            return done < int(most) and self._sequence(list(body), at, once)

        if done < least:
            return again()
        return (then(at) or again()) if is_lazy else (again() or then(at))

    def _is(self, code: str, argument: Any, character: str) -> bool:
        if code == "ANY":
            return True
        if code == "LITERAL":
            return bool(ord(character) == argument)
        if code == "NOT_LITERAL":
            return bool(ord(character) != argument)
        if code == "RANGE":
            return bool(argument[0] <= ord(character) <= argument[1])
        assert code == "IN"
        members = [each for each in argument if str(each[0]) != "NEGATE"]
        return any(self._is(str(kind), each, character) for kind, each in members) != (len(members) < len(argument))


def _slow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{2,}"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda each: f"(?:{each[0]}|{each[1]})"),
        st.tuples(inner, repeats).map(lambda each: f"(?:{each[0]}){each[1]}"),
        inner.map(lambda each: f"(?={each})"),
    )


SLOW = st.tuples(
    st.recursive(st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "a*", "a+", "[ab]*", ".*", "b?", "ab"]), _slow),
    st.sampled_from(["", "", "$", "b", "c", "[^b]c"]),
).map("".join)


@given(SLOW, st.sampled_from(["a" * 30, "ab" * 15, "aab" * 10, "b" + "a" * 29, "a" * 29 + "c"]))
@settings(max_examples=600, deadline=None)
def test_an_expression_takes_no_more_steps_than_are_expected(pattern: str, text: str) -> None:
    tree = _tree(pattern)
    assume(tree is not None)
    found = steps_of(tree)
    assume(found.degree <= 3)
    most = int(len(pattern) * found.factor * (len(text) + 2) ** found.degree)
    counter = _Counter(tree, text)
    assert counter.search(most) or most > 200_000, (found, counter.steps, most)


@pytest.mark.parametrize(
    "pattern",
    [r"user=(\d+)", r"(\w+) (\w+) (\d+)", r"^(\w+)://([^/:]+)(:\d+)?(/.*)?$", "(a+)+", r"(\w+)=(\S+)", r"(?:\w+/)+"],
)
def test_what_takes_few_steps_stays_with_re(pattern: str) -> None:
    assert steps_of(_tree(pattern)).longest(10_000_000) > 4000


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$", "(a|aa)+$", "(x+x+)+y", "a?" * 30 + "a" * 30, "(?:a+){30}", "(?:a(?=[^x]*x))*b",
        "(?:a(?=(?:a(?=[^x]*x))*))*b", "(?:a(?:[^xy]*y|))*b", "(?:a(?:[^xy]*y)?)*b", "(?:(k)|)++",
    ],
)  # fmt: skip
def test_what_can_take_forever_never_gets_to_re(pattern: str) -> None:
    assert steps_of(_tree(pattern)).longest(10_000_000) == 0


def test_repeats_with_limits_count_as_long_as_they_are() -> None:
    assert steps_of(_tree("(?:(?:(?:.{20}){20}){20}){20}Z")).longest(10_000_000) < 2_000


def test_an_expression_that_takes_too_long_is_an_error() -> None:
    slow = regexes.compiled("(a|aa)+$", re.ASCII, "(a|aa)+$", timeout_s=0.01)
    with pytest.raises(ValueFailure, match=r"the regular expression '\(a\|aa\)\+\$' took longer than 0.01 s for 'aaa"):
        slow.search("a" * 100 + "b")


def test_an_expression_that_is_too_large_for_a_time_limit_is_an_error() -> None:
    large = regexes.compiled("(?:(?:a|aa){1000}){1000}b", re.ASCII, "large", timeout_s=0.01)
    with pytest.raises(ValueFailure, match="the regular expression 'large' is too large: with its repeats"):
        large.search("a")
