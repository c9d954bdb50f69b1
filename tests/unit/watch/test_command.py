"""`rmqio watch` on a fake cluster: one frame, lines, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.options import ClientOptions
from rmqio.watch.frames import Target
from rmqio.watch.watcher import Watcher
from tests.helpers.client.unplugged import UnpluggedBroker
from tests.helpers.command_line import Tool
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.waiting import until
from tests.unit.watch.support import append

WATCH = ("watch", "--topic", "orders", "--every", "0.1")


def test_one_frame_as_json(rmqio: Tool) -> None:
    found: dict[str, Any] = json.loads(rmqio(*WATCH, "--group", "billing", "--once", "--json"))
    assert found["total"] | {"lag_ms": 0} == {
        "messages": 12, "lag_messages": 5, "lag_ms": 0, "in_per_s": 0, "out_per_s": 0, "dead_letters": None,
    }  # fmt: skip
    assert [(queue["broker"], queue["queue_id"], queue["lag_messages"]) for queue in found["queues"]] == [
        ("broker-a", 0, 3), ("broker-a", 1, 2), ("broker-b", 0, 0), ("broker-b", 1, 0),
    ]  # fmt: skip
    assert [broker["is_up"] for broker in found["brokers"]] == [True, True]
    assert found["dead_letters"] == [{"topic": "%DLQ%billing", "messages": None, "new": None, "per_s": None}]
    assert found["notes"] == []


def test_one_frame_as_text(rmqio: Tool) -> None:
    pytest.importorskip("rich", reason="the extra watch")
    text = rmqio(*WATCH, "--group", "billing", "--once")
    assert text.startswith("rmqio watch: orders, group billing")
    assert "lag 5 " in text
    assert all(line == line.rstrip() or len(line) <= 80 for line in text.splitlines())
    assert sum(line.startswith("broker-a:") for line in text.splitlines()) == 2


def test_a_topic_without_a_group_shows_its_messages(rmqio: Tool) -> None:
    found = json.loads(rmqio(*WATCH, "--once", "--json"))
    assert (found["total"]["messages"], found["total"]["lag_messages"], found["group"]) == (12, None, None)


def test_a_broker_that_is_down_is_away(broker: FakeBroker, rmqio: Tool) -> None:
    broker.stop_broker("broker-b")
    found = json.loads(rmqio(*WATCH, "--group", "billing", "--once", "--json", status=1))
    a, b = found["brokers"]
    assert (a["is_up"], b["is_up"], b["answered_ms"]) == (True, False, None)
    assert "broker-b" in b["error"]
    assert [queue["lag_messages"] for queue in found["queues"] if not queue["is_away"]] == [3, 2]


def test_a_broker_that_hangs_is_away_and_holds_up_nobody() -> None:
    with UnpluggedBroker(brokers=("broker-a", "broker-b")) as broker:
        for queue in broker.cluster.create_topic("orders", 2, ("broker-a", "broker-b")):
            append(broker, queue, 3)
        broker.pause_broker("broker-b")
        client = RemotingQueueClient(ClientOptions(broker.name_server), broker.environment)
        watcher = Watcher(client, Target(("orders",)), every_s=0.1, timeout_ms=1_000)
        watcher.begin()
        frame = watcher.frame()
        client.close()
    assert broker.clock.monotonic() == pytest.approx(1.0)
    a, b = frame.brokers
    assert (a.is_up, b.is_up, b.answered_ms) == (True, False, None)
    assert "broker-b" in str(b.error)
    assert [queue.is_away for queue in frame.queues] == [False, False, True, True]


def test_a_broker_that_goes_away_while_we_look_keeps_its_last_lag(broker: FakeBroker) -> None:
    client = RemotingQueueClient(ClientOptions(broker.name_server, request_timeout_ms=2_000, max_retries=0))
    watcher = Watcher(client, Target(("orders",), "billing"), every_s=0.1, timeout_ms=2_000)
    try:
        watcher.start()
        until(lambda: watcher.frame().total.lag_ms is not None, "the look at when the oldest unread message was stored")
        broker.pause_broker("broker-a")
        until(lambda: not watcher.frame().is_whole, "a frame without broker-a")
        seen = watcher.wait(0, 0)
        until(lambda: watcher.wait(0, 0) > seen + 3, "polls that go on, and their frames")
        away = [("broker-a", False), ("broker-b", True)]
        # A machine that is busy for two seconds makes the other broker look away, too, until the next poll.
        frame = watcher.frame()

        def only_a_is_away() -> bool:
            nonlocal frame
            frame = watcher.frame()
            return [(each.broker, each.is_up) for each in frame.brokers] == away

        until(only_a_is_away, "broker-a alone to be away", details=lambda: frame.brokers)
        assert frame.brokers[0].answered_ms is not None
        assert frame.total.lag == 5
        broker.resume_broker("broker-a")
        append(broker, frame.queues[0].state.queue, 4)

        def is_back() -> bool:
            frame = watcher.frame()
            return frame.is_whole and frame.total.lag == 9

        until(is_back, "a lag of 9", details=watcher.frame)
        assert watcher.points(), "plots have points"
        assert watcher.points(after_ms=watcher.frame().time_ms + 60_000) == []
    finally:
        watcher.close()
        client.close()


def test_dead_letters_are_found_when_their_topic_is_made(broker: FakeBroker) -> None:
    client = RemotingQueueClient(ClientOptions(broker.name_server))
    watcher = Watcher(client, Target(("orders",), None, ("failed",)), every_s=0.1, timeout_ms=10_000)
    watcher.begin()
    assert watcher.frame().dead_letters[0].messages is None
    (queue,) = broker.cluster.create_topic("failed", 1)
    append(broker, queue, 2)
    watcher._discover()
    watcher.poll()
    (letters,) = watcher.frame().dead_letters
    assert letters.messages == 2
    assert watcher.frame().notes == ()
    watcher.close()
    client.close()


def test_a_failure_of_the_polls_is_not_silent(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = RemotingQueueClient(ClientOptions(broker.name_server))
    watcher = Watcher(client, Target(("orders",)), every_s=0.1, timeout_ms=1_000)

    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a bug")

    watcher.begin()
    monkeypatch.setattr(client, "look_up", fail)
    watcher._in_thread(watcher.poll, 0.01)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        until(lambda: not watcher.frame(), "the failure of a poll")
    watcher.close()
    client.close()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--topic", "oders"), "topic 'oders' does not exist; did you mean orders?"),
        (("--dead_letter_topic", "orders"), "--dead_letter_topic orders: it is also given as --topic"),
        (("--metrics", "ftp://x"), "'ftp://x' is not the URL of an exporter"),
        (("--web", "--json"), "--web"),
        (("--web", "--once"), "--once cannot be combined with --web"),
        (("--web=70000",), "port '70000' is not a whole number from 0 to 65535"),
        (("--every", "0"), "'0' is not a number of seconds"),
    ],
)
def test_what_is_refused(rmqio: Tool, more: tuple[str, ...], said: str) -> None:
    if "--metrics" in more:
        pytest.importorskip("prometheus_client", reason="the extra watch")
    once = () if any(each.startswith("--web") for each in more) else ("--once", "--json")
    rmqio(*WATCH, *more, *once, status=1 if "oders" in more else 2)
    assert said in rmqio.err


def test_a_view_needs_a_terminal(rmqio: Tool) -> None:
    pytest.importorskip("rich", reason="the extra watch")
    rmqio(*WATCH, status=2)
    assert "standard output is not a terminal: add --once, --json or --web" in rmqio.err


def test_a_mistyped_group_gets_the_nearest_name(broker: FakeBroker) -> None:
    client = RemotingQueueClient(ClientOptions(broker.name_server))
    watcher = Watcher(
        client, Target(("orders",), "biling"), every_s=0.1, timeout_ms=10_000, groups_of=lambda topic: ["billing"]
    )
    watcher.begin()
    watcher.poll()
    assert watcher.frame().notes[0] == "group 'biling' has no offset; did you mean billing?"
    watcher.close()
    client.close()
