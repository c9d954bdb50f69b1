"""Commands on a fake broker: what a real one does not do when asked to."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rmqio.cli import peek, produce
from rmqio.cli.main import make_parser, parse
from rmqio.cli.produce import _lines_of
from rmqio.command_line.cluster import Item
from rmqio.errors import TopicNotExist
from rmqio.model import MessageFilter, Record, decode_properties
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.wire.command import RequestCode
from tests.helpers.command_line import Tool
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.fakes.faults import answer, close
from tests.helpers.fakes.protocol import BrokerSettings


def fill(broker: FakeBroker) -> None:
    """Twelve messages over four queues, in turn, a millisecond apart."""
    for number in range(12):
        name, queue_id = ("broker-a", "broker-b")[number % 2], number // 2 % 2
        broker.cluster.append(
            "orders",
            b"%d" % number,
            broker=name,
            queue_id=queue_id,
            store_ms=1_000 + number,
            tags="even" if number % 2 == 0 else "odd",
        )


def test_a_broker_that_is_down_does_not_keep_back_what_the_other_says(broker: FakeBroker, rmqio: Tool) -> None:
    fill(broker)
    broker.cluster.commit("billing", broker.cluster.create_topic("orders", 2)[0], 1)
    broker.stop_broker("broker-b")
    out = rmqio("describe", "orders", "--group", "billing", status=1)
    assert "broker-b:0           -           -  no answer" in out
    assert "rmqio: no answer for broker-b:0, broker-b:1: cannot connect to 127.0.0.1:" in rmqio.err
    found = rmqio.json("describe", "orders", status=1)
    assert found["total"]["messages"] == 6
    assert [set(queue) >= {"error"} for queue in found["queues"]] == [False, False, True, True]
    rmqio("offsets", "reset", "orders", "--group", "billing", "--to", "earliest", "--execute", status=1)
    assert "nothing has been changed" in rmqio.err


def test_what_retention_took_is_lost_and_no_lag(broker: FakeBroker, rmqio: Tool) -> None:
    fill(broker)
    queue = broker.cluster.create_topic("orders", 2)[0]
    broker.cluster.commit("billing", queue, 0)
    broker.cluster.delete_before(queue, 2)
    found = rmqio.json("describe", "orders", "--group", "billing")
    assert "broker-a:0: 2 messages from offset 0 on were deleted by retention" in rmqio.err
    assert (found["queues"][0]["lag_messages"], found["queues"][0]["lost_messages"]) == (1, 2)
    assert found["queues"][0]["last_timestamp_ms"] == 1_008
    assert (found["total"]["messages"], found["total"]["lag_messages"], found["total"]["lost_messages"]) == (10, 1, 2)


def test_messages_come_in_order_of_time(broker: FakeBroker, rmqio: Tool) -> None:
    fill(broker)
    everything = [str(number) for number in range(12)]
    assert rmqio.bodies("peek", "orders", "--from", "earliest", "-n", "20") == everything
    assert rmqio.bodies("peek", "orders", "--from", "earliest", "-n", "5") == everything[:5]
    assert rmqio.bodies("peek", "orders", "-n", "5") == everything[-5:]
    assert rmqio.bodies("peek", "orders", "--from", "1005") == everything[5:]
    assert rmqio.bodies("peek", "orders", "--tags", "even", "-n", "4") == ["4", "6", "8", "10"]
    assert rmqio.bodies("peek", "orders", "--queue", "broker-b:1") == ["3", "7", "11"]
    assert rmqio.bodies("peek", "orders", "--queue", "broker-b:1", "--offset", "1", "-n", "1") == ["7"]
    assert rmqio.bodies("tail", "orders", "--from", "earliest", "-n", "12") == everything


def test_the_newest_with_a_tag_are_found_far_back(broker: FakeBroker, rmqio: Tool) -> None:
    queue = broker.cluster.create_topic("orders", 2)[0]
    for number in range(300):
        broker.cluster.append("orders", b"%d" % number, tags="rare" if number in (3, 7, 50) else "usual")
    assert rmqio.bodies("peek", "orders", "--tags", "rare", "-n", "2") == ["7", "50"]
    broker.cluster.delete_before(queue, 10)
    assert rmqio.bodies("peek", "orders", "--tags", "rare", "-n", "2") == ["50"]
    assert rmqio.bodies("peek", "orders", "--tags", "none") == []
    assert "no message that passes the filter" in rmqio.err


def test_a_message_that_does_not_decode_is_shown_in_its_place(broker: FakeBroker, rmqio: Tool) -> None:
    fill(broker)
    queue = broker.cluster.create_topic("orders", 2)[0]
    broker.cluster.corrupt(queue, 1)
    out = rmqio("peek", "orders", "--queue", "broker-a:0", "--from", "earliest", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert [each["queue_offset"] for each in found] == [0, 1, 2]
    assert ["error" in each for each in found] == [False, True, False]


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        ("describe order", 1, "topic 'order' does not exist; did you mean orders?"),
        ("topics order", 1, "no topic matches 'order'; the nearest is orders"),
        ("topics oder*", 1, "no topic matches 'oder*'; the nearest is orders"),
        ("topics nothing-like-it", 1, "no topic matches 'nothing-like-it'; `rmqio topics` lists all topics"),
        ("topics updte", 1, "no topic matches 'updte'; did you mean the command `rmqio topics update`?"),
        ("peek orders --avro_schema none.avsc", 2, "--avro_schema none.avsc: the file does not exist"),
        ("peek nothing-like-it", 1, "does not exist, or its brokers are down; `rmqio topics` lists"),
        ("produce order x", 1, "does not exist; did you mean orders? `rmqio topics create order` creates it"),
        ("produce new x", 1, "does not exist, or its brokers are down; `rmqio topics create new` creates it"),
        ("peek orders --queue broker-c:0", 1, "no queue broker-c:0; it has 4: broker-a:0 to broker-b:1"),
        ("peek orders --queue 0", 1, "topic 'orders' is on 2 brokers; write broker-a:0"),
        ("peek orders --offset 3", 2, "--offset 3: an offset is of one queue, and topic 'orders' has 4"),
        ("peek orders --queue broker-a:0 --offset 9", 1, "has no offset 9: it holds 0 to 2, and 3 is its end"),
        ("peek orders --tags", 2, "expected one argument"),
        ("produce orders x --property KEYS=1", 2, "the name is reserved"),
        ("offsets reset orders --group g --to 3", 2, "an offset belongs to one queue, and 4 are selected"),
    ],
)
def test_what_is_wrong_is_one_line(broker: FakeBroker, rmqio: Tool, arguments: str, status: int, expected: str) -> None:
    fill(broker)
    assert rmqio(*arguments.split(), status=status) == ""
    assert expected in rmqio.err
    assert rmqio.err.count("\n") == 1


def test_tail_finds_queues_that_are_added_and_rides_out_that_none_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peek, "_DISCOVERY_ROUNDS", 1)
    monkeypatch.setattr(peek, "_TAIL_WAIT_MS", 10)
    with InMemoryCluster() as cluster:
        cluster.create_topic("orders", 1)
        cluster.append("orders", b"0")
        seen = []

        class Printer:
            def print(self, item: Item) -> None:
                assert isinstance(item.content, Record)
                seen.append(item.content.body)
                if item.content.body == b"0":
                    cluster.append("orders", b"1")
                if item.content.body == b"1":
                    cluster.fail_next("queues", TopicNotExist(17, "no route", "orders"), times=3)
                    cluster.add_queues("orders", 1)
                    cluster.append("orders", b"2", queue_id=1)

        arguments = parse(make_parser(), ["tail", "orders", "--from", "earliest", "-n", "3"])
        client = InMemoryClientFactory(cluster.name).queue_client()
        peek._follow(client, arguments, Printer(), MessageFilter())  # type: ignore[arg-type]
        client.close()
    assert seen == [b"0", b"1", b"2"]


def test_a_topic_is_created_where_the_broker_permits_it(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(settings=BrokerSettings(auto_create_topics=True)) as broker:
        broker.cluster.create_topic("orders", 2)
        rmqio = Tool(broker.name_server, capsys, "--timeout_ms", "2000")
        rmqio("produce", "order", "x")
        assert "topic order does not exist, but orders does: the broker is asked to create it" in rmqio.err
        rmqio("produce", "order", "y")
        assert rmqio.err == ""
        rmqio("produce", "more", "--lines", "a\nb\nc")
        assert sorted(rmqio.bodies("peek", "order")) == ["x", "y"]
        assert sorted(rmqio.bodies("peek", "more")) == ["a", "b", "c"]


def test_a_topic_that_exists_is_never_made_anew_by_a_send(broker: FakeBroker, rmqio: Tool) -> None:
    """Whoever deletes it meanwhile gets an error, not another topic."""
    rmqio("produce", "orders", "x")
    (sent,) = (request for _, request in broker.requests if request.code == RequestCode.SEND_MESSAGE_V2)
    assert sent.ext["c"] == ""


def test_no_topic_at_all(broker: FakeBroker, rmqio: Tool) -> None:
    broker.cluster.delete_topic("orders")
    assert rmqio("topics") == ""
    assert "there is no topic yet; `rmqio topics create TOPIC` creates one" in rmqio.err
    assert rmqio.json("topics", "x", status=1) == {"topics": []}


def test_an_empty_body_is_refused(rmqio: Tool) -> None:
    rmqio("produce", "orders", "", status=2)
    assert "the body is empty" in rmqio.err


def test_whether_somebody_is_online_decides_and_is_not_guessed(broker: FakeBroker, rmqio: Tool) -> None:
    fill(broker)
    queue = broker.cluster.create_topic("orders", 2)[0]
    broker.cluster.commit("g", queue, 3)
    reset = ("offsets", "reset", "orders", "--group", "g", "--to", "earliest", "--execute", "--queue", "broker-a:0")
    rmqio(*reset, status=1)  # this fake serves no list of members
    assert "cannot find out whether members" in rmqio.err
    assert broker.cluster.committed("g", queue) == 3
    broker.on(38, answer(1, "no consumer for this group, g"), times=None)
    assert rmqio.json(*reset)["method"] == "commit"
    assert broker.cluster.committed("g", queue) == 0


@pytest.mark.parametrize("config", [b"useServerSideResetOffset=false\n", b"brokerName=old\n"])
def test_a_broker_that_would_reset_every_queue_is_not_asked_to(broker: FakeBroker, rmqio: Tool, config: bytes) -> None:
    fill(broker)
    queue = broker.cluster.create_topic("orders", 2)[0]
    broker.cluster.commit("g", queue, 3)
    broker.on(26, lambda exchange: exchange.send(_with_body(config)), times=None)
    reset = ("offsets", "reset", "orders", "--group", "g", "--to", "0", "--execute", "--queue", "broker-a:0")
    rmqio(*reset, "--method", "reset", status=1)
    assert "cannot reset one queue" in rmqio.err
    assert "nothing has been changed" in rmqio.err
    assert broker.count(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET) == 0


def _with_body(body: bytes) -> Any:
    from rmqio.wire.command import Command

    return Command(0, body=body)


def test_a_commit_that_somebody_overwrites_is_not_said_to_be_done(broker: FakeBroker, rmqio: Tool) -> None:
    fill(broker)
    queue = broker.cluster.create_topic("orders", 2)[0]
    broker.cluster.commit("g", queue, 3)
    broker.on(38, answer(1, "no consumer for this group, g"), times=None)
    broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, answer(0))  # as if it had been overwritten
    reset = ("offsets", "reset", "orders", "--group", "g", "--to", "0", "--execute", "--queue", "broker-a:0")
    assert "WRONG" in rmqio(*reset, status=1)
    assert "a member of the group has committed" in rmqio.err


def test_lines_are_taken_as_they_come() -> None:
    class Slow(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return self.read(4)

    assert list(_lines_of(Slow(b"a\nbcdefg\n\nh"))) == [[b"a"], [b"bcdefg", b""], [b"h"]]


def test_an_interrupted_produce_says_how_far_it_got(rmqio: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(_: object) -> Iterator[list[bytes]]:
        yield [b"a", b"b"]
        raise KeyboardInterrupt

    monkeypatch.setattr(produce, "_lines_of", typed)
    rmqio("produce", "orders", "--lines", "-", status=130)
    assert rmqio.err == "rmqio: interrupted; 2 messages sent before\n"


def test_a_batch_that_fails_says_how_far_it_got(
    broker: FakeBroker, rmqio: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n".join("x" * 1_000 for _ in range(2_000))  # several batches
    broker.on(RequestCode.SEND_BATCH_MESSAGE, lambda exchange: exchange.send(exchange.handle()), times=2)
    broker.on(RequestCode.SEND_BATCH_MESSAGE, answer(16, "no"), times=None)
    rmqio("produce", "orders", "--lines", text, status=1)
    stored = sum(broker.cluster.stored_queue(queue).end for queue in broker.cluster.create_topic("orders", 2))
    assert f"{stored:,} messages sent before" in rmqio.err
    assert " not sent, " in rmqio.err
    assert 0 < stored < 2_000


def test_an_unknown_outcome_is_reported_as_one(broker: FakeBroker, rmqio: Tool) -> None:
    broker.on(RequestCode.SEND_MESSAGE_V2, close(executed=True), times=None)
    rmqio("produce", "orders", "x", status=1)
    assert "message 1 may be stored, possibly more than once" in rmqio.err


def test_a_broker_that_nobody_reaches_stores_nothing(broker: FakeBroker, rmqio: Tool) -> None:
    broker.stop_broker("broker-a")
    broker.stop_broker("broker-b")
    rmqio("produce", "orders", "x", status=1)
    assert "may be stored" not in rmqio.err


def test_a_delivery_in_ten_minutes(broker: FakeBroker, rmqio: Tool) -> None:
    before = time.time()
    rmqio("produce", "orders", "x", "--deliver_at", "10m")
    (sent,) = (request for _, request in broker.requests if request.code == RequestCode.SEND_MESSAGE_V2)
    properties = decode_properties(sent.ext["i"].encode())
    assert before + 599 < int(properties["TIMER_DELIVER_MS"]) / 1000 < before + 700
    rmqio("produce", "orders", "x", "--deliver_at", "2020-01-01T00:00:00Z", status=2)
    assert "is in the past; 10m means in ten minutes" in rmqio.err


def test_delayed_lines_go_one_by_one(broker: FakeBroker, rmqio: Tool) -> None:
    rmqio("produce", "orders", "--lines", "a\nb", "--delay_level", "1")
    assert broker.count(RequestCode.SEND_BATCH_MESSAGE) == 0  # whose members would not be delayed
    assert broker.count(RequestCode.SEND_MESSAGE_V2) == 2


@pytest.mark.parametrize("option", ["--name_server", "--name_serv"])
def test_a_hint_names_no_option_that_the_command_refuses(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(make_parser(), ["schemas", "list", option, "a:1"])
    assert capsys.readouterr().err == (
        f"rmqio schemas list: unknown argument {option!r} (see rmqio schemas list --help)\n"
    )
