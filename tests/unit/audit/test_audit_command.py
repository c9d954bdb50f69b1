"""`rmqio audit` on topics in memory: identities, what is told, the page."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from rmqio.audit.checking import Request, audit
from rmqio.audit.command import merged, to_request
from rmqio.audit.identity import parse_identity
from rmqio.audit.report import document
from rmqio.audit.sketch import Hop, Key, Sketch, Total, encode, mixed_one
from rmqio.batches import record_id
from rmqio.dead_letters.letters import Failed, letter_id, make_letter
from rmqio.errors import LocalError
from rmqio.model import MessageQueue
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.browser import needs_browser, shown, texts
from tests.unit.audit.support import SECOND, arguments, report, run, send


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
    assert (found["arrived"], found["in_dead_letters"], found["lost"], found["late"]) == (3, 1, 2, 1)
    assert [each["offset"] for each in found["messages"]["out_of_order"]] == [0]
    assert [each["delay_ms"] for each in found["messages"]["late"]] == [66_000]
    assert found["delay_ms"]["max"] == 66_000
    assert found["delay_ms"]["99_percent_within"] == 66_000, "no bound is beyond the longest delay"
    assert sum(window["sent"] for window in found["windows"]) == 6


@pytest.mark.parametrize("when", ["before", "while it is read"])
def test_messages_of_the_source_that_retention_has_deleted(when: str, cluster: InMemoryCluster) -> None:
    """Their copies are not of no message there, and that nothing is lost is said of the others only."""
    for number in range(10):
        queue = send(cluster, "source", number).queue
        send(cluster, "sink", number, ms=SECOND)

    def expire(text: str) -> None:
        if when == "before" or text.startswith("reading source"):
            cluster.delete_before(queue, 4)

    if when == "before":
        expire("")
    with contextlib.closing(InMemoryClientFactory(cluster.name).queue_client()) as client:
        report = document(audit(client, Request("source", "sink"), expire), 10, {})
    assert (report["sent"], report["lost"], report["foreign"], report["wrong"]) == (6, 0, 4, {})
    expected = "retention has deleted 4 messages of source" + (": what" if when == "before" else " during the read")
    assert any(note.startswith(expected) for note in report["notes"]), report["notes"]


def test_what_has_no_identity_and_is_a_dead_letter_is_in_order(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """A body that does not decode is the usual reason of a dead letter, and has no field."""
    for number in range(3):
        send(cluster, "source", number)
        send(cluster, "sink", number, ms=SECOND)
    bad = [cluster.append("source", b"not json") for _ in range(2)]
    letter = make_letter(Failed(b"not json", "E", "r", origin=bad[0].queue, queue_offset=bad[0].queue_offset))
    cluster.append("dead", letter.body, properties={**letter.properties, "UNIQ_KEY": letter_id(letter)})
    assert report(cluster, capsys, "--by=field:name")["wrong"] == {"unidentified": 2}
    found = report(cluster, capsys, "--by=field:name", "--dead-letter-topic=dead")
    assert (found["wrong"], found["unidentified"], found["lost"]) == ({"unidentified": 1}, 1, 0)
    assert (
        "1 message of source that dead letters name cannot be identified by field:name, or cannot be decoded"
        in found["notes"]
    )
    letter = make_letter(Failed(b"not json", "E", "r", origin=bad[1].queue, queue_offset=bad[1].queue_offset))
    cluster.append("dead", letter.body, properties={**letter.properties, "UNIQ_KEY": letter_id(letter)})
    assert report(cluster, capsys, "--by=field:name", "--dead-letter-topic=dead", status=0)["is_good"]


@pytest.mark.parametrize("letter_first", [True, False], ids=["replayed after it", "another output failed"])
def test_a_dead_letter_is_no_second_copy(
    letter_first: bool, cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """A letter that was replayed, or is of another output, is beside its message; a repeated bundle has two letters."""
    sources = [send(cluster, "source", n, ms=n * SECOND) for n in range(4)]
    for number, ms in ((0, 1_500), (1, 30_000 if letter_first else 1_600)):
        cluster.append("sink", b"x", store_ms=1_000_000 + ms, properties={"UNIQ_KEY": record_id(sources[number])})
    for number in (1, 2, 2):
        letter = make_letter(Failed(b"x", "E", "r", origin=sources[number].queue, queue_offset=number))
        properties = {**letter.properties, "UNIQ_KEY": letter_id(letter)}
        cluster.append("dead", letter.body, properties=properties, store_ms=1_004_000)
    found = report(cluster, capsys, "--dead-letter-topic=dead")
    assert (found["sent"], found["arrived"], found["in_dead_letters"]) == (4, 2, 1)
    assert found["wrong"] == {"lost": 1}
    assert [each["offset"] for each in found["messages"]["lost"]] == [3]
    came = [(each["topic"], each["arrived"], each["in_dead_letters"]) for each in found["to_queues"]]
    assert [each for each in came if any(each[1:])] == [("dead", 0, 1), ("sink", 2, 0)]


@pytest.mark.parametrize(
    ("read_ms", "parsed_ms", "expected"),
    [
        (900, 70_900, "between 'read' and 'parsed'"),
        (66_000, 66_900, "between topic source and 'read'"),
        (300, 700, "between 'parsed' and topic sink"),
    ],
    ids=["in a function", "before the read", "in the write"],
)
def test_a_late_message_is_named_with_its_slowest_hop(
    read_ms: int, parsed_ms: int, expected: str, cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each queue has one message. That of the first one is not late."""
    cluster.create_topic("hops", 1)
    hops = Hop("read", 0, ()), Hop("parsed", 1, ("read",))
    for queue_id, delays in enumerate([(200, 201), (read_ms, parsed_ms)]):
        queue: MessageQueue = send(cluster, "source", queue_id, queue_id=queue_id).queue
        for hop, delay in zip(hops, delays, strict=True):
            key = Key("run", hop.name, *queue, 0, 0, "")
            ms = 1_000_000 + delay
            cluster.append("hops", encode(Sketch(key, hop, Total(1, mixed_one(0), ms, ms, ms))))
        send(cluster, "sink", queue_id, ms=(500, 72_000)[queue_id])
    words = "--by=id", "--audit-topic=hops"
    (late,) = report(cluster, capsys, *words, status=0)["messages"]["late"]
    assert (late["queue"], late["message_id"], late["delay_ms"]) == ("broker-a:1", "ID1", 72_000)
    assert late["where"] == expected
    assert run(cluster, *words) == 0
    assert f"broker-a:1 @ 0 -> broker-a:0 @ 1   72.0 s   id ID1   {expected}\n" in capsys.readouterr().out


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
    later = tmp_path / "later.html"
    later.symlink_to(tmp_path / "no" / "report.html")  # what is told of a folder that goes away meanwhile
    with pytest.raises(LocalError, match="No such file"):
        run(cluster, "--by=id", "--html", str(later))


@needs_browser
def test_a_browser_shows_the_page_and_its_plot(cluster: InMemoryCluster, tmp_path: Path) -> None:
    for number in range(30):
        send(cluster, "source", number, keys=("<b>&",), ms=number * SECOND)
        if number not in range(12, 15):
            send(cluster, "sink", number, ms=number * SECOND + 20)
    page = tmp_path / "report.html"
    assert run(cluster, "--by=id", "--html", str(page), "--window=10s") == 1
    document = shown(page.as_uri())
    assert "Offsets: lost queue first offset last offset messages where broker-a:0 12 14 3" in texts(document)
    assert "Wrong: lost 0 2 4 " in texts(document), "labels of whole messages"
    assert "<b>&" in texts(document), "a name is text"
    assert document.count('class="s-lost"') == 1, "the bar of the second window"


def test_what_has_no_identity_is_an_error_and_said(
    cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    send(cluster, "source", 1)
    send(cluster, "sink", 1)
    cluster.append("source", b"not json")
    found = report(cluster, capsys, "--by=field:name")
    assert found["wrong"] == {"unidentified": 1}
    assert "cannot be identified by field:name" in found["notes"][0]


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
    deleted, foreign = found["notes"]
    assert deleted == "retention has deleted 2 messages of source: what came of them is not known"
    assert "was not read from its first message on to its end" in foreign


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


@pytest.mark.parametrize("by", ["auto", "place"])
def test_topics_without_anything_in_common_are_told(by: str, cluster: InMemoryCluster) -> None:
    send(cluster, "source", 1)
    send(cluster, "sink", 2)
    with pytest.raises(LocalError, match=r"use --by to say|say with --by what"):
        run(cluster, "--by", by)


def test_by_place_what_was_sent_after_the_end_of_the_source_is_no_doubt(cluster: InMemoryCluster) -> None:
    """The sink has messages of no message there, as a topic that is written to always has: they hide no loss."""
    for number in range(4):
        sent = send(cluster, "source", number)
        if number != 2:
            cluster.append("sink", b"x", store_ms=1_000_000, properties={"UNIQ_KEY": record_id(sent)})

    def send_more(text: str) -> None:
        if text == "reading sink":
            sent = cluster.append("source", b"x")
            cluster.append("sink", b"x", properties={"UNIQ_KEY": record_id(sent)})

    with contextlib.closing(InMemoryClientFactory(cluster.name).queue_client()) as client:
        result = audit(client, Request("source", "sink", by="place"), send_more)
        assert (result.wrong, result.findings.total.foreign) == ({"lost": 1}, 1)
        cluster.append("sink", b"x", store_ms=1_000_000, properties={"UNIQ_KEY": "OTHER"})
        with pytest.raises(LocalError, match=r"but 1 message of sink .* which are not known here"):
            audit(client, Request("source", "sink", by="place"), send_more)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--by=feld:x"], "did you mean field"),
        (["--by=field:"], "the name is missing"),
        (["--dead_letter_topic=sink"], "--dead_letter_topic sink is --to_topic, too"),
        (["--live", "--to=latest"], "remove --to"),
        (["--live", "--keep=1m"], "--keep must be longer"),
        (["--late=5"], "is not a duration"),
        (["--window=0s"], "must be longer than zero"),
    ],
)
def test_wrong_usage_is_one_line(
    words: list[str], expected: str, cluster: InMemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(cluster, *words)
    assert expected in capsys.readouterr().err


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
    monkeypatch.setattr("rmqio.audit.command._ROWS_OF_MB", 1)
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
