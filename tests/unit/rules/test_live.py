"""Rules that follow their source, and compiled patterns that processes share."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="rules need the extra 'rules'")

from rmqio.errors import LocalError
from rmqio.rules.engine import compile_rules
from rmqio.rules.errors import Limits, Problem, RuleError
from rmqio.rules.ir import Atom, Kind, Place, Rule
from rmqio.rules.live import FolderStore, LiveRules, live_rules
from rmqio.rules.match.regexes import has_vectorscan
from rmqio.testing import ManualClock
from tests.helpers.waiting import at_most

needs_vectorscan = pytest.mark.skipif(not has_vectorscan(), reason="hyperscan has no wheel here")


class Source:
    """Rules that a test changes."""

    def __init__(self) -> None:
        self.rules: tuple[Rule, ...] = (Rule("one", Atom("a", Kind.EQUALS, 1)),)
        self.version = 1
        self.looks = 0
        self.failure: Exception | None = None

    def load(self) -> tuple[Rule, ...]:
        if self.failure is not None:
            raise self.failure
        return self.rules

    def signature(self) -> str:
        self.looks += 1
        return str(self.version)

    def change(self, *rules: Rule) -> None:
        self.rules, self.version = rules, self.version + 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def live_of(source: Source, clock: ManualClock, **given: Any) -> LiveRules:
    settings: dict[str, Any] = {"refresh_s": 10, "on_bad_rule": "keep_previous", "limits": Limits(), "store": None}
    return LiveRules(source, clock=clock.monotonic, **{**settings, **given})


def ids(live: LiveRules, event: dict[str, Any]) -> list[str]:
    return [hit.rule.id for hit in live.pinned().match(event)]


TWO = Rule("two", Atom("a", Kind.EQUALS, 1))


def test_no_bundle_begins_with_rules_that_are_older(clock: ManualClock) -> None:
    source = Source()
    live = live_of(source, clock)
    source.change(TWO)
    clock.sleep(4)
    assert ids(live, {"a": 1}) == ["one"]
    assert source.looks == 1
    clock.sleep(6)
    assert ids(live, {"a": 1}) == ["two"]
    assert live.taken_counts() == (1, 0, 0)
    assert live.taken_counts() == (0, 0, 0)


def test_a_busy_pipeline_never_waits(clock: ManualClock) -> None:
    """From half of the time on, new rules are made in a thread, and later bundles have them."""
    source = Source()
    live = live_of(source, clock)
    source.change(TWO)
    gate = threading.Event()
    load, source.load = source.load, lambda: (gate.wait(at_most(30)) and load()) or ()  # type: ignore[method-assign]
    clock.sleep(6)
    assert ids(live, {"a": 1}) == ["one"]  # while the thread loads
    gate.set()
    thread = live._thread
    assert thread is not None
    thread.join(at_most(30))
    assert ids(live, {"a": 1}) == ["two"]


def test_a_bundle_keeps_its_rules(clock: ManualClock) -> None:
    source = Source()
    live = live_of(source, clock)
    pinned = live.pinned()
    source.change(TWO)
    clock.sleep(10)
    assert live.pinned().version != pinned.version
    assert [hit.rule.id for hit in pinned.match({"a": 1})] == ["one"]


def test_a_bad_set_leaves_the_one_before_and_is_reported_once(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()
    live = live_of(source, clock)
    source.change(Rule("bad", Atom("a", Kind.CIDR, "10.0.0.300"), place=Place("rules/net.yml", 7)))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            clock.sleep(10)
            assert ids(live, {"a": 1}) == ["one"]
    (logged,) = [record.getMessage() for record in caplog.records]
    assert "rules/net.yml:7: rule bad: cidr of 'a': '10.0.0.300' does not appear" in logged
    assert live.taken_counts() == (0, 1, 0)
    source.change(TWO)
    clock.sleep(10)
    assert ids(live, {"a": 1}) == ["two"]


def test_on_request_a_bad_set_fails_the_bundle(clock: ManualClock) -> None:
    source = Source()
    live = live_of(source, clock, on_bad_rule="fail")
    source.change()
    source.failure = RuleError((Problem("rules/a.yml", 3, "x", "a reason"),))
    clock.sleep(10)
    with pytest.raises(RuleError, match=r"rules/a.yml:3: rule x: a reason"):
        live.pinned()
    source.failure = None
    clock.sleep(10)
    assert ids(live, {"a": 1}) == []


def test_on_request_bad_rules_are_left_out_and_listed(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("re2", reason="regular expressions need the extra 'rules'")
    source = Source()
    bad = Rule("bad", Atom("a", Kind.REGEX, "(?<=x)1"), place=Place("rules/a.yml", 7))
    source.rules = (*source.rules, bad)
    with caplog.at_level(logging.WARNING):
        live = live_of(source, clock, on_bad_rule="skip")
        assert ids(live, {"a": 1}) == ["one"]
    (logged,) = [record.getMessage() for record in caplog.records]
    assert "rules/a.yml:7: rule bad: the regular expression '(?<=x)1' cannot run" in logged
    assert [each.rule_id for each in live.left_out] == ["bad"]
    source.change(TWO, bad)
    clock.sleep(10)
    assert ids(live, {"a": 1}) == ["two"]
    assert live.taken_counts() == (1, 0, 2)
    source.change(bad)  # of which nothing is left
    clock.sleep(10)
    assert ids(live, {"a": 1}) == ["two"]
    assert live.taken_counts() == (0, 1, 0)
    with pytest.raises(RuleError, match="rule bad"):
        live_of(source, clock, on_bad_rule="skip")


def test_the_first_load_fails_the_start(clock: ManualClock) -> None:
    source = Source()
    source.failure = RuleError((Problem("rules/a.yml", 3, "x", "a reason"),))
    with pytest.raises(RuleError, match="a reason"):
        live_of(source, clock)


class Shared(Source):
    """A source without a test's own state, so that two of them are equal."""


def test_a_process_has_one_matcher_for_a_source(clock: ManualClock) -> None:
    made = []

    def make() -> LiveRules:
        made.append(live_of(Shared(), clock))
        return made[-1]

    assert live_rules(Shared(), make, 1) is live_rules(Shared(), make, 1)
    assert live_rules(Shared(), make, 2) is not made[0]
    assert len(made) == 2
    source = Source()
    source.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(LocalError, match="the rules cannot go to workers: Source does not pickle"):
        live_rules(source, make)


def test_a_set_without_rules_is_reported(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    live = live_of(source, clock)
    assert not caplog.records
    source.change()
    clock.advance(11)
    assert ids(live, {"a": 1}) == []
    assert ["there are no rules" in each.message for each in caplog.records] == [True]


# ---- compiled patterns -----------------------------------------------------------------------------------------------

PATTERNS = [Rule("a", Atom("x", Kind.CONTAINS, "one")), Rule("b", Atom("y", Kind.REGEX, "two+"))]


class Counting:
    """Counts what is compiled."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def get(self, key: str, build: Any) -> bytes:
        self.keys.append(key)
        return bytes(build())


@needs_vectorscan
def test_only_fields_that_changed_are_compiled() -> None:
    first, second = Counting(), Counting()
    before = compile_rules(PATTERNS, store=first)
    assert len(first.keys) == 3  # of each field, and of x once more for whole columns
    rules = [Rule("new", Atom("y", Kind.CONTAINS, "three")), *PATTERNS]  # which gives all atoms other numbers
    after = compile_rules(rules, store=second, previous=before)
    assert len(second.keys) == 1
    assert [hit.rule.id for hit in after.match({"x": "one", "y": "three two"})] == ["new", "a", "b"]


@needs_vectorscan
def test_processes_share_what_is_compiled(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "rules")
    compile_rules(PATTERNS, store=store)
    assert len([path for path in store.folder.iterdir() if not path.name.startswith("lock-")]) == 3

    def never() -> bytes:
        raise AssertionError("it is there")

    for path in store.folder.iterdir():
        if not path.name.startswith("lock-"):
            assert store.get(path.name, never)


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "rules")
    assert store.get("k", lambda: b"made") == b"made"
    (store.folder / "k").write_bytes(b"x" * 40)
    assert store.get("k", lambda: b"again") == b"again"
    assert store.get("k", lambda: b"not made") == b"again"


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    os.chmod(folder, 0o777)
    assert FolderStore(folder).get("k", lambda: b"made") == b"made"
    assert not [*folder.iterdir()]
    assert "compiled rules are not shared: others may write to" in caplog.text


def test_files_that_nobody_reads_are_deleted(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "rules")
    store.get("k1", lambda: b"made")
    os.utime(store.folder / "k1", (0, 0))
    store.get("k2", lambda: b"made")
    assert not (store.folder / "k1").exists()


def test_the_version_is_that_of_the_content() -> None:
    rule = Rule("a", Atom("x", Kind.EQUALS, 1), place=Place("one.yml", 1))
    moved = Rule("a", Atom("x", Kind.EQUALS, 1), place=Place("two.yml", 9))
    assert compile_rules([rule]).version == compile_rules([moved]).version
    others = [Rule("a", Atom("x", Kind.EQUALS, value)) for value in (True, 1.0, "1")]
    assert len({compile_rules([each]).version for each in (rule, *others)}) == 4
