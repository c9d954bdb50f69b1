"""Sources of rules: all or nothing, and the newest."""

from __future__ import annotations

import errno
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqio.errors import LocalError
from rmqio.model import MessageQueue
from rmqio.rules.errors import Limits, RuleError
from rmqio.rules.ir import Atom, Kind, Rule
from rmqio.rules.live import LiveRules
from rmqio.rules.ruleset import RuleSet, write_manifest
from rmqio.testing import InMemoryClientFactory, InMemoryCluster, ManualClock
from rmqio.testing.memory import InMemoryQueueClient


def rule(rule_id: str) -> str:
    return json.dumps({"id": rule_id, "condition": {"field": "a", "is": "exists"}})


def ids(rules: RuleSet) -> list[str]:
    return [each.id for each in rules.load()]


def test_patterns_find_files_in_order_and_the_signature_sees_each_change(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    rules = RuleSet.from_files(tmp_path / "*.json", tmp_path / "deep" / "**" / "*.json", tmp_path / "a.json")
    signatures = set()
    (tmp_path / "a.json").write_text(rule("a"))
    (tmp_path / "deep" / "c.json").write_text(rule("c"))
    signatures.add(rules.signature())
    assert ids(rules) == ["a", "c"]
    assert rules.signature() in signatures
    (tmp_path / "b.json").write_text(rule("b"))
    signatures.add(rules.signature())
    assert ids(rules) == ["a", "b", "c"]
    (tmp_path / "a.json").write_text(rule("d"))
    os.utime(tmp_path / "a.json", (1, 1))
    signatures.add(rules.signature())
    (tmp_path / "b.json").unlink()
    signatures.add(rules.signature())
    assert ids(rules) == ["d", "c"]
    assert len(signatures) == 4


def test_when_the_last_file_is_deleted_the_set_is_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A typo at the start is an error. Later, files that are gone are rules that somebody deleted."""
    folder, other = tmp_path / "rules", tmp_path / "more"
    folder.mkdir()
    other.mkdir()
    (folder / "a.json").write_text(rule("a"))
    rules = RuleSet.from_files(folder / "*.json", other / "b.json")
    clock = ManualClock()

    def made() -> LiveRules:
        settings: dict[str, Any] = {"on_bad_rule": "keep_previous", "limits": Limits(), "store": None}
        return LiveRules(rules, refresh_s=1, clock=clock.monotonic, **settings)

    def in_force() -> list[str]:
        clock.sleep(1)
        return [each.id for each in live.pinned().rules]

    with pytest.raises(RuleError, match=r"b\.json: there is no such file of rules"):
        made()
    (other / "b.json").write_text(rule("b"))
    live = made()
    (folder / "a.json").unlink()
    assert in_force() == ["b"]
    (other / "b.json").unlink()
    assert in_force() == []
    assert "there are no rules" in caplog.text
    (other / "b.json").write_text(rule("b"))
    assert in_force() == ["b"]
    folder.rename(tmp_path / "moved")
    (other / "b.json").unlink()
    assert in_force() == ["b"]
    assert "the folder" in caplog.text
    folder.mkdir()
    assert in_force() == []


def _loop(file: Path) -> None:
    file.symlink_to(file)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda file: file.symlink_to("nowhere.json"), "a.json: this is a link to a file that is not there: nowhere"),
        (os.mkfifo, "a.json: this is not a regular file"),
        (_loop, "a.json: cannot read it: Too many levels of symbolic links"),
    ],
    ids=["link", "pipe", "loop"],
)
def test_a_file_that_has_become_something_else_leaves_the_set_as_it_was(
    damage: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    """It is no file that somebody has deleted, and its rules are not gone."""
    (file := tmp_path / "a.json").write_text(rule("a"))
    rules = RuleSet.from_files(tmp_path / "*.json").after_start()
    assert ids(rules) == ["a"]
    file.unlink()
    damage(file)
    with pytest.raises(RuleError, match=reason):
        rules.load()
    with pytest.raises(RuleError, match=reason):
        rules.signature()


def test_a_folder_that_cannot_be_listed_leaves_the_set_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The glob module finds no files there: rights that were taken away, or a share that is gone."""
    (tmp_path / "a.json").write_text(rule("a"))
    rules = RuleSet.from_files(tmp_path / "*.json").after_start()

    def fail(path: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(RuleError, match=r"\*\.json: cannot list .*: Permission denied"):
        rules.signature()


def test_a_set_is_a_value(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(rule("a"))
    rules = RuleSet.from_files(tmp_path / "*.json", mapping={"a": "b"})
    back = pickle.loads(pickle.dumps(rules))
    assert back == rules
    assert back.signature() == rules.signature()
    assert back.load()[0].condition == Atom("b", Kind.EXISTS)
    fixed = RuleSet.of([Rule("a", Atom("x", Kind.EXISTS))])
    assert pickle.loads(pickle.dumps(fixed)).signature() == fixed.signature()
    assert fixed.signature() != RuleSet.of([Rule("a", Atom("y", Kind.EXISTS))]).signature()


def test_a_manifest_is_all_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(rule("a"))
    (tmp_path / "b.json").write_text(rule("b"))
    manifest = tmp_path / "manifest.json"
    write_manifest(manifest, [tmp_path / "a.json", tmp_path / "b.json"])
    rules = RuleSet.from_files(manifest)
    assert ids(rules) == ["a", "b"]
    before = rules.signature()
    (tmp_path / "c.json").write_text(rule("c"))
    assert rules.signature() == before
    assert ids(rules) == ["a", "b"]
    (tmp_path / "b.json").write_text(rule("half-written"))
    with pytest.raises(RuleError, match=r"b\.json: this is not the file of the manifest"):
        rules.load()
    (tmp_path / "b.json").unlink()
    with pytest.raises(RuleError, match="the manifest names this file, and it is not there"):
        rules.load()
    write_manifest(manifest, [tmp_path / "a.json", tmp_path / "c.json"])
    manifest.write_bytes(b"\xef\xbb\xbf" + manifest.read_bytes())  # as editors of Windows write it
    assert rules.signature() != before
    assert ids(rules) == ["a", "c"]


@pytest.mark.parametrize("text", [b"", b"[]", b'{"files": []}', b'{"files": {"../x.json": "0"}}', b'{"files": "\xff"}'])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(text)
    with pytest.raises(RuleError, match=r"manifest\.json: "):
        RuleSet.from_files(tmp_path / "manifest.json").load()


def test_a_manifest_has_files_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "a.json").write_text(rule("a"))
    with pytest.raises(LocalError, match="is not in the folder of the manifest"):
        write_manifest(tmp_path / "in" / "manifest.json", [tmp_path / "a.json"])
    with pytest.raises(LocalError, match="a manifest must be named"):
        write_manifest(tmp_path / "in" / "list.json", [tmp_path / "a.json"])


def test_a_folder_behind_a_link_is_replaced_at_once(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "r.json").write_text(rule(name))
    (tmp_path / "rules").symlink_to("old")
    rules = RuleSet.from_files(tmp_path / "rules" / "*.json")
    assert ids(rules) == ["old"]
    before = rules.signature()
    (tmp_path / "next").symlink_to("new")
    (tmp_path / "next").replace(tmp_path / "rules")
    assert rules.signature() != before
    assert ids(rules) == ["new"]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"id":\n "\xff"}')
    for pattern, reason in (
        (tmp_path / "*.yml", "there is no such file of rules"),
        (tmp_path / "b.json", "there is no such file of rules"),
        (tmp_path, "this is a folder"),
        (tmp_path / "a.json", "a.json:2: this is not UTF-8: byte 9 is not"),
    ):
        with pytest.raises(RuleError) as caught:
            RuleSet.from_files(pattern).load()
        assert reason in str(caught.value)


def test_an_id_is_one_rules_and_all_problems_come_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(f"[{rule('x')},\n{rule('y')}]")
    (tmp_path / "b.json").write_text(f"[{rule('x')}, 5]")
    with pytest.raises(RuleError) as caught:
        RuleSet.from_files(tmp_path / "*.json").load()
    first, second = caught.value.problems
    assert "a rule is an object, not 5" in first.reason
    assert (second.rule_id, second.reason) == ("x", f"{tmp_path}/a.json:1 has the same id")
    assert len(str(caught.value).splitlines()) == 2


def test_a_format_is_known_or_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(rule("a"))
    with pytest.raises(LocalError, match=r"not one of sigma, where, json; did you mean json\?"):
        RuleSet.from_files("x", format="jsn")
    with pytest.raises(RuleError, match="the suffix says no format"):
        RuleSet.from_files(tmp_path / "a.txt").load()
    assert ids(RuleSet.from_files(tmp_path / "a.txt", format="json")) == ["a"]


# ---- topics ---------------------------------------------------------------------------------------------------------


def test_the_newest_message_of_a_key_counts() -> None:
    with InMemoryCluster(poll_records=3) as cluster:
        first, second = cluster.create_topic("rules", 2)

        def put(queue: MessageQueue, key: str, body: str) -> None:
            cluster.append("rules", body.encode(), queue_id=queue.queue_id, keys=[key])

        rules = RuleSet.from_topic("rules", client_factory=InMemoryClientFactory(cluster.name))
        assert ids(rules) == []
        empty = rules.signature()
        for number in range(10):
            put(first, "a.json", rule(f"a{number}"))
        put(first, "b.json", rule("b"))
        put(second, "c.json", rule("c"))
        full = rules.signature()
        assert full != empty
        assert ids(rules) == ["a9", "b", "c"]
        assert rules.load()[0].place.file == "a.json"
        put(first, "b.json", "")
        assert rules.signature() != full
        assert ids(rules) == ["a9", "c"]
        cluster.delete_before(second, 1)
        assert ids(rules) == ["a9"]
        assert cluster.open_clients == 0


def test_a_message_without_a_key_is_a_problem_and_not_lost() -> None:
    with InMemoryCluster() as cluster:
        cluster.create_topic("rules", 1)
        cluster.append("rules", rule("a").encode())
        rules = RuleSet.from_topic("rules", client_factory=InMemoryClientFactory(cluster.name))
        with pytest.raises(RuleError, match=r"needs a key, which is the name of its file .*offset 0"):
            rules.load()


def test_a_topic_that_was_made_anew_and_filled_to_the_same_offsets_is_a_change() -> None:
    clock = ManualClock()
    with InMemoryCluster(clock=clock) as cluster:

        def fill(name: str) -> None:
            cluster.create_topic("rules", 2)
            for number in range(2):
                clock.advance(1)
                cluster.append("rules", rule(f"{name}{number}").encode(), queue_id=number, keys=[f"{number}.json"])

        fill("old")
        rules = RuleSet.from_topic("rules", client_factory=InMemoryClientFactory(cluster.name))
        before = rules.signature()
        assert ids(rules) == ["old0", "old1"]
        assert rules.signature() == before, "nothing has changed"
        cluster.append("rules", rule("more").encode(), queue_id=1, keys=["1.json"])  # in the millisecond of the last
        more = rules.signature()
        assert ids(rules) == ["old0", "more"]
        assert rules.signature() == more != before
        cluster.delete_topic("rules")
        fill("new")
        clock.advance(1)
        cluster.append("rules", rule("last").encode(), queue_id=1, keys=["1.json"])
        anew = rules.signature()
        assert anew != more
        assert rules.signature() == anew
        assert ids(rules) == ["new0", "last"]
        assert rules.signature() == anew


def test_queues_that_leave_the_route_leave_the_set_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server forgets a broker that is away for minutes, and with it its queues."""
    with InMemoryCluster() as cluster:
        cluster.create_topic("rules", 2)
        for number in range(2):
            cluster.append("rules", rule(f"r{number}").encode(), queue_id=number, keys=[f"{number}.json"])
        rules = RuleSet.from_topic("rules", client_factory=InMemoryClientFactory(cluster.name))
        assert ids(rules) == ["r0", "r1"]
        with monkeypatch.context() as patched:
            all_queues = InMemoryQueueClient.queues
            patched.setattr(InMemoryQueueClient, "queues", lambda self, topic, **given: all_queues(self, topic)[:1])
            for look in (rules.load, rules.signature):
                with pytest.raises(
                    RuleError, match=r"rules: 1 of its queues, such as .*, are not in the route any more"
                ):
                    look()
        assert ids(rules) == ["r0", "r1"]
