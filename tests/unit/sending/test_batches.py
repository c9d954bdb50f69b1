"""Batches in flight: limits, order, what is settled and what is raised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from rmqio.errors import (
    InvalidParameter,
    LocalError,
    MessageIllegal,
    NoPermission,
    RmqioError,
    SetupError,
    SlaveNotAvailable,
    SystemBusy,
    TopicNotExist,
    TransportError,
    broker_error,
)
from rmqio.model import Message, MessageQueue, SendResult
from rmqio.security import CredentialsError
from rmqio.sending.batches import BatchSender, ProducerBatch
from rmqio.testing import ManualClock
from rmqio.transforms.writing.outputs import WriteMetrics, WriteOutputs

A0, A1, B0 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0)


class ScriptedPending:
    """Done when told; `result` waits for nothing, and is written down."""

    def __init__(self, producer: ScriptedProducer, name: str, outcome: list[SendResult] | RmqioError) -> None:
        self._producer, self._name, self._outcome = producer, name, outcome
        self.has_outcome = False

    def is_done(self) -> bool:
        return self.has_outcome

    def result(self) -> list[SendResult]:
        self._producer.events.append(f"await {self._name}")
        if isinstance(self._outcome, RmqioError):
            raise self._outcome
        return self._outcome


class ScriptedProducer:
    """Writes down what is asked of it. `judge` says what comes of a batch, `refuse` what submit itself raises."""

    def __init__(self, queues: Sequence[MessageQueue] = (A0, A1, B0)) -> None:
        self.topic_queues = queues
        self.events: list[str] = []
        self.ids: dict[bytes, list[str]] = {}
        self.pending: list[ScriptedPending] = []
        self.ordered: list[bool] = []
        self.judge: Callable[[MessageQueue, list[bytes]], RmqioError | None] = lambda queue, bodies: None
        self.refuse: Callable[[list[bytes]], RmqioError | None] = lambda bodies: None
        self.is_closed = False

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        if self.is_closed:
            raise LocalError("this producer is closed")
        return self.topic_queues

    def submit(
        self,
        messages: Sequence[Message],
        queue: MessageQueue,
        *,
        ordered: bool = False,
        message_ids: Sequence[str] | None = None,
    ) -> ScriptedPending:
        assert message_ids is not None
        bodies = [message.body for message in messages]
        name = f"{queue.broker}{queue.queue_id} {b''.join(bodies).decode()}"
        self.events.append(f"submit {name}")
        self.ordered.append(ordered)
        for body, message_id in zip(bodies, message_ids, strict=True):
            self.ids.setdefault(body, []).append(message_id)
        refused = self.refuse(bodies)
        if refused:
            raise refused
        results = [SendResult(queue, 0, message_id, "") for message_id in message_ids]
        self.pending.append(ScriptedPending(self, name, self.judge(queue, bodies) or results))
        return self.pending[-1]

    def send(self, message: Message, queue: MessageQueue | None = None, *, message_id: str | None = None) -> SendResult:
        assert message_id is not None
        self.events.append(f"send {queue and queue.broker}{queue and queue.queue_id} {message.body.decode()}")
        self.ids.setdefault(message.body, []).append(message_id)
        error = self.judge(queue or A0, [message.body]) or self.refuse([message.body])
        if error:
            raise error
        return SendResult(queue or A0, 0, message_id, "")

    def send_batch(self, messages: Any, queue: Any = None, *, message_ids: Any = None) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self.is_closed = True


class Setting:
    """A sender over a scripted producer."""

    def __init__(
        self, max_in_flight: int = 4, *, ordered: bool = True, required_topics: frozenset[str] = frozenset()
    ) -> None:
        self.producer = ScriptedProducer()
        self.clock = ManualClock()
        self.outputs = WriteOutputs(WriteMetrics(), with_sent=True)
        self.sender = BatchSender(
            self.producer,
            self.outputs,
            max_in_flight=max_in_flight,
            ordered=ordered,
            required_topics=required_topics,
            clock=self.clock.monotonic,
        )

    def taken(self) -> tuple[list[str], list[str]]:
        """Elements sent and elements failed, with the reason."""
        sent, failed = [], []
        for output in self.outputs.take():
            if isinstance(output, WindowedValue):
                sent.append(output.value.message_id)
            else:
                failed.append(f"{output.value.value.element} {output.value.value.error}")
        return sent, failed


def batch(text: str, queue: MessageQueue = A0, *, keyed: bool = False, ids: bool = True) -> ProducerBatch:
    """One message per character, which is its body, its element and its id."""
    made = ProducerBatch(queue, keyed=keyed)
    for letter in text:
        origin = WindowedValue(None, 0, (GlobalWindow(),))
        made.add(Message(letter.encode()), letter if ids else None, letter, origin, 1)
    return made


BUSY = SystemBusy(2, "busy", "send")
ILLEGAL = MessageIllegal(13, "too large", "send")


def guilty(*letters: str, error: RmqioError = ILLEGAL) -> Callable[[MessageQueue, list[bytes]], RmqioError | None]:
    wanted = {letter.encode() for letter in letters}
    return lambda queue, bodies: error if wanted & set(bodies) else None


def test_synchronous_send_awaits_each_batch() -> None:
    setting = Setting(max_in_flight=1)
    setting.sender.send(batch("ab"))
    setting.sender.send(batch("cd", B0))
    assert setting.producer.events == ["submit a0 ab", "await a0 ab", "submit b0 cd", "await b0 cd"]
    assert setting.taken() == (["a", "b", "c", "d"], [])


def test_asynchronous_sends_are_awaited_by_drain() -> None:
    setting = Setting(max_in_flight=4)
    for text in "abc":
        setting.sender.send(batch(text))
    assert setting.producer.events == ["submit a0 a", "submit a0 b", "submit a0 c"]
    assert setting.taken() == ([], [])
    setting.sender.drain()
    assert setting.taken() == (["a", "b", "c"], [])
    setting.sender.drain()
    assert len(setting.producer.events) == 6


def test_the_limit_of_batches_in_flight_waits_for_the_oldest() -> None:
    setting = Setting(max_in_flight=2)
    for text in "abc":
        setting.sender.send(batch(text))
    assert setting.producer.events == ["submit a0 a", "submit a0 b", "await a0 a", "submit a0 c"]


def test_a_failed_batch_in_flight_stops_the_next_send() -> None:
    setting = Setting(max_in_flight=4)
    setting.producer.judge = guilty("a", error=BUSY)
    setting.sender.send(batch("a", keyed=True))
    setting.producer.pending[0].has_outcome = True
    with pytest.raises(SystemBusy):
        setting.sender.send(batch("b", B0))
    assert setting.producer.events == ["submit a0 a", "await a0 a"]


@pytest.mark.parametrize("error", [BUSY, TransportError("gone"), SlaveNotAvailable(11, None, "send")])
@pytest.mark.parametrize("all_done", [False, True])
def test_after_an_error_nothing_is_in_flight_and_nothing_is_left_to_fetch(error: RmqioError, all_done: bool) -> None:
    setting = Setting(max_in_flight=4)
    setting.producer.judge = guilty("a", "c", error=error)
    for text in "abcd":
        setting.sender.send(batch(text))
    if all_done:
        for pending in setting.producer.pending:
            pending.has_outcome = True
    with pytest.raises(type(error)):
        setting.sender.send(batch("e")) if all_done else setting.sender.drain()
    assert setting.producer.events[4:] == ["await a0 a", "await a0 b", "await a0 c", "await a0 d"]
    setting.sender.drain()
    assert setting.taken() == ([], [])


def test_an_ordered_queue_has_one_batch_in_flight_and_others_go_on() -> None:
    setting = Setting(max_in_flight=8)
    setting.sender.send(batch("a", A0, keyed=True))
    setting.sender.send(batch("x", B0))
    setting.sender.send(batch("y", B0))
    setting.sender.send(batch("b", A0, keyed=True))
    assert setting.producer.events == ["submit a0 a", "submit b0 x", "submit b0 y", "await a0 a", "submit a0 b"]
    assert setting.producer.ordered == [True, False, False, True]


def test_nothing_follows_a_failed_batch_in_an_ordered_queue() -> None:
    setting = Setting(max_in_flight=8)
    setting.producer.judge = guilty("a", error=BUSY)
    setting.sender.send(batch("a", A0, keyed=True))
    with pytest.raises(SystemBusy):
        setting.sender.send(batch("b", A0, keyed=True))
    assert "submit a0 b" not in setting.producer.events


def test_order_can_be_given_up() -> None:
    setting = Setting(max_in_flight=8, ordered=False)
    setting.sender.send(batch("a", A0, keyed=True))
    setting.sender.send(batch("b", A0, keyed=True))
    assert setting.producer.events == ["submit a0 a", "submit a0 b"]
    assert setting.producer.ordered == [False, False]


@pytest.mark.parametrize("error", [ILLEGAL, InvalidParameter(29, "bad", "send"), LocalError("too large")])
@pytest.mark.parametrize("letters", ["", "a", "h", "d", "bc", "aceg", "abcdefgh"])
@pytest.mark.parametrize("by_submit", [False, True])
def test_only_the_guilty_messages_of_a_refused_batch_fail(error: RmqioError, letters: str, by_submit: bool) -> None:
    setting = Setting(max_in_flight=1)
    judge = guilty(*letters, error=error)
    if by_submit:
        setting.producer.refuse = lambda bodies: judge(A0, bodies)
    else:
        setting.producer.judge = judge
    setting.sender.send(batch("abcdefgh"))
    sent, failed = setting.taken()
    assert "".join(sent) == "".join(c for c in "abcdefgh" if c not in letters)  # in order
    assert failed == [f"'{c}' {type(error).__name__}" for c in letters]


NO_PERMISSION = NoPermission(16, "User:u has no permission to access Topic:t from 10.0.0.1, no match.", "send")


def test_a_forbidden_topic_fails_the_messages_without_more_tries() -> None:
    setting = Setting(max_in_flight=1)
    setting.producer.judge = guilty("c", error=NO_PERMISSION)
    setting.sender.send(batch("abc"))
    assert setting.taken() == ([], [f"'{c}' NoPermission" for c in "abc"])
    assert len(setting.producer.events) == 2


@pytest.mark.parametrize("alone", [False, True])
def test_a_forbidden_topic_that_the_write_needs_is_raised(alone: bool) -> None:
    setting = Setting(max_in_flight=1, required_topics=frozenset({"t"}))
    setting.producer.judge = guilty("c", error=NO_PERMISSION)
    with pytest.raises(NoPermission):
        (setting.sender.send_alone if alone else setting.sender.send)(batch("c"))
    assert setting.taken() == ([], [])


@pytest.mark.parametrize("by_submit", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        NoPermission(16, "check signature failed.", "send"),
        NoPermission(16, "User:u is not found.", "send"),
        NoPermission(16, "the broker[10.0.0.1] sending message is forbidden", "send"),
        NoPermission(16, None, "send"),
        CredentialsError("the file is gone"),
        SetupError("a route leads to 10.0.0.1:10911, which is not one of the allowed addresses"),
        broker_error(29, "request queueId[3] is illegal, topicConfig.writeQueueNums=2", "send"),
    ],
)
def test_what_is_wrong_with_all_messages_is_raised_and_drops_none(error: RmqioError, by_submit: bool) -> None:
    setting = Setting(max_in_flight=1)
    if by_submit:
        setting.producer.refuse = lambda bodies: error
    else:
        setting.producer.judge = lambda queue, bodies: error
    with pytest.raises(type(error)):
        setting.sender.send(batch("abc"))
    assert setting.taken() == ([], [])
    assert sum(event.startswith("submit") for event in setting.producer.events) == 1


def test_a_topic_that_vanishes_is_an_outage_not_the_messages_fault() -> None:
    setting = Setting(max_in_flight=1)
    setting.producer.judge = guilty("c", error=TopicNotExist(17, "none", "send"))
    with pytest.raises(TopicNotExist):
        setting.sender.send(batch("abc"))
    assert setting.taken() == ([], [])


def test_an_error_that_is_not_retriable_is_raised_at_once() -> None:
    setting = Setting(max_in_flight=1)
    setting.producer.judge = guilty("a", error=SlaveNotAvailable(11, None, "send"))
    with pytest.raises(SlaveNotAvailable):
        setting.sender.send(batch("a"))
    assert setting.producer.events == ["submit a0 a", "await a0 a"]


@pytest.mark.parametrize("alone", [False, True])
def test_a_closed_producer_does_not_make_messages_fail(alone: bool) -> None:
    setting = Setting(max_in_flight=1)
    setting.producer.close()
    setting.producer.refuse = lambda bodies: LocalError("this producer is closed")
    with pytest.raises(LocalError, match="closed"):
        (setting.sender.send_alone if alone else setting.sender.send)(batch("a"))
    assert setting.taken() == ([], [])


def test_send_alone_waits_for_its_queue_and_names_the_topic() -> None:
    setting = Setting(max_in_flight=8)
    setting.sender.send(batch("a", A0, keyed=True))
    setting.sender.send(batch("x", A1))
    setting.sender.send_alone(batch("b", A0, keyed=True))
    setting.sender.send_alone(batch("c", A0))
    assert setting.producer.events == ["submit a0 a", "submit a1 x", "await a0 a", "send a0 b", "send NoneNone c"]


def test_send_alone_settles_a_refusal_and_raises_the_rest() -> None:
    setting = Setting()
    setting.producer.judge = guilty("a")
    setting.sender.send_alone(batch("a"))
    assert setting.taken() == ([], ["'a' MessageIllegal"])
    setting.producer.judge = guilty("a", error=BUSY)
    with pytest.raises(SystemBusy):
        setting.sender.send_alone(batch("a"))


def test_messages_without_an_id_get_distinct_ones_and_known_ids_stay() -> None:
    setting = Setting(max_in_flight=1)
    mixed = batch("abc", ids=False)
    mixed.ids[1] = "known"
    setting.sender.send(mixed)
    setting.sender.send(batch("de", ids=False))
    ids = [setting.producer.ids[letter.encode()][0] for letter in "abcde"]
    assert ids[1] == "known"
    assert len(set(ids)) == 5
    assert all(len(message_id) == 32 for message_id in ids if message_id != "known")


def test_abandon_waits_and_gives_nothing_out() -> None:
    setting = Setting(max_in_flight=4)
    setting.producer.judge = guilty("a", error=BUSY)
    for text in "ab":
        setting.sender.send(batch(text))
    setting.sender.abandon()
    assert setting.producer.events[2:] == ["await a0 a", "await a0 b"]
    assert setting.taken() == ([], [])


def test_a_wrong_number_of_results_is_an_error() -> None:
    setting = Setting(max_in_flight=1)
    with pytest.raises(LocalError, match="returned 1 results for 2 messages"):
        setting.outputs.sent(batch("ab").origins, batch("ab").messages, [SendResult(A0, 0, "", "")], 0.0)
