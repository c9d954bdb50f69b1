"""`rmqio audit` on topics in memory: identities, what is told, the page, live mode."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqio.audit import command, reading
from rmqio.audit.arguments import to_request
from rmqio.audit.identity import parse_identity
from rmqio.audit.report.plot import merged
from rmqio.batches import record_id
from rmqio.cli.main import make_parser, parse
from rmqio.dead_letters.letters import Failed, letter_id, make_letter
from rmqio.errors import LocalError, TransportError
from rmqio.testing import InMemoryClientFactory, InMemoryCluster

SECOND = 1_000


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        for topic in ("source", "sink", "dead"):
            made.create_topic(topic, 2)
        yield made


def arguments(*words: str) -> argparse.Namespace:
    line = ["audit", "--name_server=h:1", "--from_topic=source", "--to_topic=sink", *words]
    return parse(make_parser(), line)


def run(cluster: InMemoryCluster, *words: str) -> int:
    return command.run(arguments(*words), client_factory=InMemoryClientFactory(cluster.name))


def report(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], *words: str, status: int = 1
) -> dict[str, Any]:
    assert run(cluster, "--json", *words) == status
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def send(cluster: InMemoryCluster, topic: str, number: int, *, ms: int = 0, queue_id: int = 0, **more: Any) -> Any:
    body = json.dumps({"order": {"id": number}, "name": f"n{number}"}).encode()
    given = {"keys": (f"k{number}",), "properties": {"UNIQ_KEY": f"ID{number}", "own": f"p{number}"}, **more}
    return cluster.append(topic, body, queue_id=queue_id, store_ms=1_000_000 + ms, **given)


@pytest.mark.parametrize("by", ["auto", "id", "keys", "body", "field:order.id", "field:name", "property:own"])
def test_each_identity_tells_the_same(by: str, cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(10):
        send(cluster, "source", number, queue_id=number % 2, ms=number)
    for number in (0, 2, 1, 3, 3, 4, 6, 8, 5):
        send(cluster, "sink", number, ms=500 + number, queue_id=number % 2)
    found = report(cluster, capsys, "--by", by)
    assert (found["sent"], found["arrived"], found["lost"], found["doubled"]) == (10, 8, 2, 1)
    assert [(each["offset"], each["message_id"]) for each in found["messages"]["lost"]] == [(3, "ID7"), (4, "ID9")]
    assert [each["keys"] for each in found["messages"]["doubled"]] == [["k3"]]
    assert found["by"] == ("id" if by == "auto" else by)


def test_places_letters_late_ones_and_order(cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    sources = [send(cluster, "source", n, ms=n * SECOND) for n in range(6)]
    for number, ms in ((1, 1_500), (0, 2_000), (4, 70_000)):
        properties = {"UNIQ_KEY": record_id(sources[number])}
        cluster.append("sink", b"x", store_ms=1_000_000 + ms, properties=properties)
    source = sources[3]
    letter = make_letter(Failed(source.body, "E", "r", origin=source.queue, queue_offset=3, message_id="ID3"))
    properties = {**letter.properties, "UNIQ_KEY": letter_id(letter)}
    cluster.append("dead", letter.body, properties=properties, store_ms=1_004_000)
    cluster.append("dead", b"no letter", store_ms=1_004_000)
    found = report(cluster, capsys, "--dead-letter-topic=dead")
    assert found["by"] == "place"
    assert (found["arrived"], found["in_dead_letters"], found["lost"], found["late"]) == (4, 1, 2, 1)
    assert [each["offset"] for each in found["messages"]["out_of_order"]] == [0]
    assert [each["delay_ms"] for each in found["messages"]["late"]] == [66_000]
    assert found["delay_ms"]["max"] == 66_000
    assert found["delay_ms"]["99_percent_within"] == 66_000, "no bound is beyond the longest delay"
    assert sum(window["sent"] for window in found["windows"]) == 6


def test_ranges_of_lost_offsets_and_a_page_of_any_names(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for number in range(100):
        send(cluster, "source", number, keys=("<b>&",), ms=number * SECOND)
        if number not in range(40, 60) and number != 70:
            send(cluster, "sink", number, ms=number * SECOND + 20)
    page = tmp_path / "report.html"
    assert run(cluster, "--by=id", "--html", str(page), "--window=10s") == 1
    out = capsys.readouterr().out
    assert "broker-a:0 @ 40 to 59   20" in out
    assert "broker-a:0 @ 70   1" in out
    text = page.read_text()
    assert "&lt;b&gt;&amp;" in text
    assert "<b>&" not in text
    assert text.count('class="s-lost"') == 3, "bars of ten seconds"
    assert "<script" not in text
    with pytest.raises(LocalError, match="No such file"):
        run(cluster, "--by=id", "--html", str(tmp_path / "no" / "report.html"))


def test_what_has_no_identity_is_an_error_and_said(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    send(cluster, "source", 1)
    send(cluster, "sink", 1)
    cluster.append("source", b"not json")
    found = report(cluster, capsys, "--by=field:name")
    assert found["wrong"] == {"unidentified": 1}
    assert "have no identity by field:name" in found["notes"][0]


def test_foreign_messages_count_only_beside_a_whole_source(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        send(cluster, "source", number)
        send(cluster, "sink", number)
    send(cluster, "sink", 7)
    assert report(cluster, capsys, "--by=id")["wrong"] == {"foreign": 1}
    cluster.delete_before(cluster.records("source")[0].queue, 2)
    found = report(cluster, capsys, "--by=id", status=0)
    assert (found["foreign"], found["is_good"]) == (3, True)
    assert "was not read from its first message on to its end" in found["notes"][0]


def test_messages_sent_after_the_end_of_the_source_was_taken_are_not_foreign(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        send(cluster, "source", number, ms=number * SECOND)
        send(cluster, "sink", number, ms=number * SECOND + 10)
    found = report(cluster, capsys, "--by=id", "--to=1970-01-01T00:16:42Z", status=0)
    assert (found["sent"], found["lost"], found["foreign"]) == (2, 0, 2)
    assert "to its end" in found["notes"][0]


def test_the_identity_is_also_chosen_by_later_messages(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Retention has deleted what the first thousand messages became."""
    for number in range(1_500):
        send(cluster, "source", number)
        if number >= 1_000:
            send(cluster, "sink", number)
    assert report(cluster, capsys, "--limit=1")["lost"] == 1_000


def test_topics_without_anything_in_common_are_told(cluster: InMemoryCluster) -> None:
    send(cluster, "source", 1)
    send(cluster, "sink", 2)
    with pytest.raises(LocalError, match="say with --by"):
        run(cluster)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--by=feld:x"], "did you mean field"),
        (["--by=field:"], "the name is missing"),
        (["--dead_letter_topic=sink"], "--dead_letter_topic sink is --to_topic, too"),
        (["--live", "--json"], "leave one of them out"),
        (["--live", "--to=latest"], "remove --to"),
        (["--live", "--keep=1m"], "--keep must be longer"),
        (["--late=5"], "is not a duration"),
        (["--window=0s"], "must be longer than nothing"),
    ],
)
def test_wrong_usage_is_one_line(
    words: list[str], expected: str, cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(cluster, *words)
    assert expected in capsys.readouterr().err


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


def test_live_says_that_nothing_arrives_by_what_it_knows(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_ids(live: Live) -> None:
        live.put("source", 1)
        live.put("sink", 2)

    lines = Live(cluster, monkeypatch, other_ids, lambda live: None).lines(capsys, "--from=latest")
    assert lines[-1].endswith("(nothing has arrived by id or place: see --by)")


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


def test_times_and_sizes_of_a_request() -> None:
    request = to_request(arguments("--window=10s", "--late=2h", "--grace=5m", "--memory_mb=16", "--from=10m"))
    assert (request.window_ms, request.late_ms, request.grace_ms) == (10_000, 7_200_000, 300_000)
    assert request.most_rows == 160_000
    assert request.start.kind == "timestamp"


def test_files_give_the_same_report(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        send(cluster, "source", number, ms=number, queue_id=number % 2)
        for _ in range(2 if number % 50 == 1 else 0 if number % 70 == 3 else 1):
            send(cluster, "sink", number, ms=number + 30, queue_id=(number + 1) % 2)
    monkeypatch.setattr("time.time", lambda: 5.0)
    whole = report(cluster, capsys, "--by=id")
    monkeypatch.setattr("rmqio.audit.arguments._ROWS_OF_MB", 1)
    in_files = report(cluster, capsys, "--by=id", "--memory_mb=16")
    for each in (whole, in_files):
        for messages in each["messages"].values():
            messages.sort(key=json.dumps)
    assert in_files == whole


def test_many_windows_become_fewer_bars() -> None:
    windows = [{"start_ms": n * 1_000, "sent": 1, "max_delay_ms": n} for n in range(0, 1_000, 2)]
    bars = merged(windows, 1_000)
    assert len(bars) <= 240
    assert sum(bar["sent"] for bar in bars) == 500
    assert bars[-1]["max_delay_ms"] == 998
    assert merged([], 1_000) == []


def test_an_identity_needs_its_name() -> None:
    with pytest.raises(LocalError, match="did you mean place"):
        parse_identity("plce")
