"""`rmqio audit --live` on topics in memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rmqio.audit import reading
from rmqio.audit.checking import Checker
from rmqio.batches import record_id
from rmqio.dead_letters.letters import Failed, letter_id, make_letter
from rmqio.errors import TransportError
from rmqio.testing import InMemoryCluster
from tests.unit.audit.support import run, send


def test_live_goes_on_where_it_was_and_forgets(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [2_000_000.0]
    monkeypatch.setattr("time.time", lambda: now[0])

    def put(topic: str, number: int) -> None:
        send(cluster, topic, number, ms=int(now[0] * 1000) - 1_000_000)

    rounds = iter(range(100))

    def sleep(_: float) -> None:
        number = next(rounds)
        if number == 4:
            raise KeyboardInterrupt
        now[0] += 100
        put("source", 10 + number)
        if number != 1:
            put("sink", 10 + number)

    monkeypatch.setattr("time.sleep", sleep)
    put("source", 1)
    put("sink", 1)
    with pytest.raises(KeyboardInterrupt):
        run(cluster, "--by=id", "--live", "--grace=50s", "--late=10s", "--keep=3m")
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert [line.split("  doubled")[0] for line in lines] == [
        "sent 1  lost 0", "sent 2  lost 0", "sent 3  lost 0", "sent 4  lost 1", "sent 5  lost 1"
    ]  # fmt: skip
    assert [line.rpartition(" ")[2] for line in lines] == ["0", "0", "1", "0", "0"], "on their way"


class Live:
    """A live audit whose clock a test moves: each step is what happens between two looks."""

    def __init__(self, cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch, *steps: Any) -> None:
        self.cluster, self.now, self.steps = cluster, 2_000_000.0, iter(steps)
        monkeypatch.setattr("time.time", lambda: self.now)
        monkeypatch.setattr("time.sleep", self.sleep)

    def sleep(self, _: float) -> None:
        self.now += 100
        step = next(self.steps, None)
        if step is None:
            raise KeyboardInterrupt
        step(self)

    def put(self, topic: str, number: int, *, ms: int = 0, **more: Any) -> Any:
        return send(self.cluster, topic, number, ms=int(self.now * 1000) - 1_000_000 + ms, **more)

    def copy(self, number: int) -> None:
        """As a pipeline of rmqio does: with an id that is derived from the place."""
        source = self.put("source", number)
        self.put("sink", number, properties={"UNIQ_KEY": record_id(source)})

    def lines(self, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
        with pytest.raises(KeyboardInterrupt):
            run(self.cluster, "--live", *words)
        return [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]

    def looks(self, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
        with pytest.raises(KeyboardInterrupt):
            run(self.cluster, "--live", "--json", *words)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_live_finds_out_what_is_equal_when_the_first_messages_arrive(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the docs begin it: there is nothing yet, then messages that are on their way."""
    live = Live(
        cluster,
        monkeypatch,
        lambda live: live.put("source", 1),
        lambda live: live.copy(2),
        lambda live: live.copy(3),
        *[lambda live: None] * 2,
    )
    live.put("sink", 0)
    lines = live.lines(capsys, "--from=latest", "--grace=150s")
    assert [line.split("  doubled")[0] for line in lines] == [
        "sent 0  lost 0", "sent 1  lost 0", "sent 2  lost 0", *["sent 3  lost 1"] * 3
    ]  # fmt: skip
    assert "see --by" not in lines[-1]


def test_live_json_is_a_line_for_each_look(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message that is lost is forgotten after the fourth look, and still counts."""
    live = Live(cluster, monkeypatch, lambda live: live.put("source", 2), *[lambda live: live.copy(3)] * 3)
    live.copy(1)
    looks = live.looks(capsys, "--grace=50s", "--late=10s", "--keep=2m", "--by=place")
    assert [(each["so_far"]["sent"], each["so_far"]["lost"]) for each in looks] == [
        (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)
    ]  # fmt: skip
    assert [[lost["message_id"] for lost in each["messages"].get("lost", ())] for each in looks] == [
        [], [], ["ID2"], ["ID2"], []
    ]  # fmt: skip
    assert {each["from_topic"] for each in looks} == {"source"}
    assert set(looks[0]["so_far"]) == {"sent", "lost", "doubled", "late", "out_of_order", "pending", "unidentified"}


def test_the_page_of_a_live_audit_remembers_what_is_no_longer_watched(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    pages: list[str] = []

    def look(live: Live) -> None:
        pages.append(file.read_text())
        live.copy(3)

    live = Live(cluster, monkeypatch, lambda live: live.put("source", 2), *[look] * 4)
    live.copy(1)
    live.lines(capsys, "--grace=50s", "--late=10s", "--keep=2m", "--by=place", f"--html={file}")
    titles = [re.findall(r"<h1 class=\"(\w+)\">[^<]*: ([^<]*)</h1>", page)[0] for page in pages]
    assert titles == [("good", "nothing lost or doubled"), *[("bad", "1 lost")] * 3]
    figures = [re.findall(r"<div>(\w+)<b>(\d+)</b></div>", page.split("Watched now")[0]) for page in pages]
    assert [dict(each)["lost"] for each in figures] == ["0", "1", "1", "1"]
    assert "<div>lost<b>0</b></div>" in pages[-1].split("Watched now: what was stored in the last 2 min")[1]


def test_live_says_that_nothing_arrives_by_what_it_knows(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_ids(live: Live) -> None:
        live.put("source", 1)
        live.put("sink", 2)

    lines = Live(cluster, monkeypatch, other_ids, lambda live: None).lines(capsys, "--from=latest")
    assert lines[-1].endswith("(nothing has arrived by id or place: see --by)")
    again = Live(cluster, monkeypatch, lambda live: None)
    assert "nothing has arrived by id or place: see --by" in again.looks(capsys, "--grace=0s")[-1]["notes"]


def test_live_goes_on_after_a_broker_was_away(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(live: Live) -> None:
        live.copy(2)

        def read_into(client: Any, side: Any, *more: Any) -> None:
            if side.topic == "source":
                monkeypatch.setattr("rmqio.audit.checking.read_into", reading.read_into)
                raise TransportError("broker-a is away")
            reading.read_into(client, side, *more)

        monkeypatch.setattr("rmqio.audit.checking.read_into", read_into)

    live = Live(cluster, monkeypatch, fail, lambda live: live.copy(3))
    live.copy(1)
    lines = live.lines(capsys, "--grace=0s")
    assert [line.split("  doubled")[0] for line in lines] == ["sent 1  lost 0", "sent 3  lost 0"]


def test_live_keeps_what_came_before_it_was_sent(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the second topic's broker is 30 s behind."""

    def put(live: Live) -> None:
        live.put("source", 1, ms=20_000)
        live.put("sink", 1, ms=-10_000)

    live = Live(cluster, monkeypatch, put, *[lambda live: None] * 4)
    lines = live.lines(capsys, "--by=id", "--late=10s", "--grace=10s", "--keep=200s")
    assert {line.split("  doubled")[0] for line in lines[1:]} == {"sent 1  lost 0"}


def test_live_forgets_places_without_identity_but_counts_them(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(live: Live) -> None:
        live.cluster.append("source", b"no json", store_ms=int(live.now * 1000))
        live.put("source", 1)
        live.put("sink", 1)

    lines = Live(cluster, monkeypatch, put, put, put, put, put).lines(
        capsys, "--by=field:name", "--late=10s", "--grace=10s", "--keep=150s"
    )
    assert [line.rpartition("without identity ")[2] for line in lines[1:]] == ["1", "2", "3", "4", "5"]


def test_live_forgets_what_dead_letters_name(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs for months beside a topic of dead letters, also of other topics."""
    kept: list[int] = []

    def forget(checker: Checker, before_ms: int) -> None:
        forget_first(checker, before_ms)
        kept.append(sum(map(len, checker._origins.values())))

    forget_first = Checker.forget
    monkeypatch.setattr(Checker, "forget", forget)

    def put(live: Live) -> None:
        for topic in ("source", "other"):
            failed = live.cluster.append(topic, b"no json", store_ms=int(live.now * 1000))
            letter = make_letter(Failed(b"no json", "E", "r", origin=failed.queue, queue_offset=failed.queue_offset))
            properties = {**letter.properties, "UNIQ_KEY": letter_id(letter)}
            live.cluster.append("dead", letter.body, properties=properties, store_ms=int(live.now * 1000))
        live.put("source", 1)
        live.put("sink", 1)

    cluster.create_topic("other", 1)
    live = Live(cluster, monkeypatch, *[put] * 5)
    lines = live.lines(
        capsys, "--by=field:name", "--late=10s", "--grace=10s", "--keep=150s", "--dead-letter-topic=dead"
    )
    assert {line.split("  doubled")[0] for line in lines[1:]} == {f"sent {n}  lost 0" for n in range(1, 6)}
    assert kept == [0, 1, 2, 2, 2, 2]


def test_live_counts_exactly_what_it_forgets(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more messages of each kind than there are places."""
    monkeypatch.setattr("rmqio.audit.findings._MOST_PLACES", 2)

    def put(live: Live) -> None:
        for number in range(20):
            live.put("source", number, ms=number)
        for number in reversed(range(5, 20)):
            for _ in range(2 if number < 11 else 1):
                live.put("sink", number, ms=30_000)

    live = Live(cluster, monkeypatch, put, *[lambda live: None] * 4)
    lines = live.lines(capsys, "--by=id", "--late=10s", "--grace=10s", "--keep=150s")
    assert lines == [
        "sent 0  lost 0  doubled 0  late 0  out of order 0  on their way 0",
        "sent 20  lost 0  doubled 6  late 15  out of order 14  on their way 5",
        *["sent 20  lost 5  doubled 6  late 15  out of order 14  on their way 0"] * 4,
    ]
