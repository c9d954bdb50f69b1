"""Transactional messages: visible once a local transaction has succeeded. See docs/transactions.md."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from rmqio.client.check_back import CheckBack, Ended, Inbox, KnownConnections
from rmqio.client.connection import Connection
from rmqio.client.environment import Environment
from rmqio.client.producer import RemotingProducer
from rmqio.client.retry import call_with_retries
from rmqio.client.routes import Routes
from rmqio.errors import GoAway, LocalError, RmqioError, broker_error
from rmqio.model import Message, MessageQueue, Record, SendResult, SendStatus
from rmqio.options import ClientOptions
from rmqio.wire import requests
from rmqio.wire.command import Command
from rmqio.wire.ids import MessageIds
from rmqio.wire.requests import Decision, HalfMessage, end_transaction, parse_check, stored_half

if TYPE_CHECKING:
    from rmqio.client.connection import Connection


# A half message that waits for its commit or rollback.


class EndsTransactions(Protocol):
    """The part of a producer that a transaction needs."""

    def check_open(self) -> None: ...
    def end(self, connection: Connection, half: HalfMessage, decision: Decision) -> None: ...
    def forget(self, transaction: Transaction) -> None: ...


class TransactionOutcomeUnknown(RmqioError):
    """A commit or rollback that the broker has not confirmed: it may or may not have taken effect.

    It must not be repeated: a second commit creates a second message. The broker will check the transaction with the
    producer group, and the `check` of one of its producers decides. `__cause__` is why there is no confirmation.
    """

    def __init__(self, message_id: str, decision: Decision) -> None:
        self.message_id, self.decision = message_id, decision
        super().__init__(
            f"transaction of message {message_id}: the broker has not confirmed its {decision.name.lower()}, which may "
            "or may not have taken effect. Do not repeat it (a second commit creates a second message): the broker "
            "will ask this producer group, and its check decides"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return TransactionOutcomeUnknown, (self.message_id, self.decision)


class TransactionResult(NamedTuple):
    """The outcome of one `TransactionProducer.send`."""

    half: SendResult
    """The half message's place: a position in the broker's system topic."""
    decision: Decision


class Transaction:
    """A stored half message that waits for its commit or rollback. Thread-safe. Made by `TransactionProducer.begin`.

    As a context manager it commits at the end of the block, unless it was ended inside. When the block raises, it
    leaves the decision to `check`, which has to find out whether the local transaction succeeded.
    """

    def __init__(
        self, producer: EndsTransactions, connection: Connection, half: HalfMessage, result: SendResult
    ) -> None:
        self.half = result
        """The half message's first place: a position in the broker's system topic."""
        self._producer = producer
        self._connection = connection
        self._place = half
        self._decision: Decision | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        state = "open" if self._decision is None else f"ended with {self._decision.name}"
        return f"<Transaction {self.message_id} {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._decision is None:
            if kind is None:
                self.commit()
            else:
                self.leave()

    @property
    def message_id(self) -> str:
        """The message's unique id: store it with the local transaction, so that `check` can find it."""
        return self.half.message_id

    @property
    def is_open(self) -> bool:
        """Whether it has not been ended here."""
        return self._decision is None

    def commit(self) -> None:
        """Make the message visible. Raises `TransactionOutcomeUnknown`, or `LocalError` if it was already ended."""
        self.end(Decision.COMMIT)

    def rollback(self) -> None:
        """Drop the message. Raises as `commit`."""
        self.end(Decision.ROLLBACK)

    def leave(self) -> None:
        """End it undecided: the broker asks, and `check` decides. Raises `LocalError` if it was already ended."""
        self.end(Decision.UNKNOWN)

    def moved(self, connection: Connection, half: HalfMessage) -> None:
        """Note, for the producer, that the broker has sent a check and stored the half message again."""
        with self._lock:
            self._connection, self._place = connection, half

    def end(self, decision: Decision) -> None:
        """End it with this decision; as `commit`, `rollback` or `leave`."""
        with self._lock:
            if self._decision is not None:
                raise LocalError(f"transaction of message {self.message_id} was ended with {self._decision.name}")
            self._producer.check_open()
            self._decision = decision
            connection, place = self._connection, self._place
        try:
            self._producer.end(connection, place, decision)
        except RmqioError as error:
            if decision is not Decision.UNKNOWN:
                raise TransactionOutcomeUnknown(self.message_id, decision) from error
        finally:
            self._producer.forget(self)


__all__ = [
    "COMMIT", "ROLLBACK", "UNKNOWN", "Decision", "Transaction", "TransactionOutcomeUnknown", "TransactionProducer",
    "TransactionResult",
]  # fmt: skip

COMMIT, ROLLBACK, UNKNOWN = Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN

Check = Callable[[Record], Decision]

_LOGGER = logging.getLogger("rmqio.client")
_STEP_MS = 1_000.0
"""The background thread checks at least this often for new routes and whether to stop."""


class TransactionProducer:
    """Sends messages that become visible when a local transaction succeeds. Thread-safe. A context manager.

    Delivery is at least once, with delay: a half message is stored, the local transaction runs, then a commit makes the
    message visible. If a commit does not arrive, the broker calls `check` on any producer of the group. A message whose
    commit answer was lost can be seen twice. Delivery is not exactly once, and one transaction holds one message.

    Brokers check a half message after 6 s, then every 30 s, 15 times in all, then drop it (their defaults). So a
    producer of the group has to be running, with the same `topics`, and its `check` must return the same answer in any
    process: look the answer up where the local transaction wrote it.

    A daemon thread sends heartbeats and answers checks from the start of the `with` block (or `start`) to its end (or
    `close`). With `background=False` there is no thread: call `serve` repeatedly.

    The producer belongs to the process that created it: a forked child must create its own.

    Args:
      options: as for every client; `vip_channel` is refused.
      group: the producer group. All its members must answer checks alike.
      check: called with the half message as a `Record`; returns `COMMIT`, `ROLLBACK` or `UNKNOWN` (ask again). An
        exception is logged and means `UNKNOWN`. Called in the background thread, or in `serve`, one at a time, and not
        for a transaction that is still open in this producer.
      topics: the topics to send to; their brokers can send checks from the start, also for an earlier producer.
      background: whether to start the thread.
      environment, ids: as `RemotingProducer`.
    """

    def __init__(
        self,
        options: ClientOptions,
        group: str,
        check: Check,
        *,
        topics: Sequence[str],
        background: bool = True,
        environment: Environment | None = None,
        ids: MessageIds | None = None,
    ) -> None:
        if options.vip_channel:
            raise LocalError("ClientOptions.vip_channel cannot be used with transactions: set it to False")
        if isinstance(topics, str) or not topics:
            raise LocalError(f"topics is {topics!r}; list the names of all topics to send to")
        self._inbox = Inbox()
        environment = replace(environment or Environment(), on_pushed=self._inbox.take_over)
        self._options = options
        self._environment = environment
        if not callable(check):
            raise LocalError(f"check is {check!r}; it must be a function that answers the broker's checks")
        self._check: Callable[[Record], object] = check  # whatever it gives
        self._topics = frozenset(topics)
        self._pool = KnownConnections(options, environment)
        self._routes = Routes(options, self._pool, environment)
        self._producer = RemotingProducer(
            options, group, pool=self._pool, routes=self._routes, environment=environment, ids=ids
        )
        self._group = self._routes.wire_name(group)
        self._check_back = CheckBack(self._group, self._inbox, self._pool, options, environment)
        self._open: weakref.WeakValueDictionary[str, Transaction] = weakref.WeakValueDictionary()
        self._ended = Ended(environment)
        self._is_closed = False
        self._pid = os.getpid()
        self._serving = threading.Lock()
        self._thread: threading.Thread | None = None
        self._has_thread = background

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<TransactionProducer {self._group!r} {state}, {len(self._open)} transactions open>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the background thread. Idempotent. No effect with `background=False`."""
        self.check_open()
        if self._has_thread and self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"rmqio-transactions-{self._group}", daemon=True)
            self._thread.start()

    # ---- sending -----------------------------------------------------------------------------------------------------

    def begin(
        self, message: Message, queue: MessageQueue | None = None, *, message_id: str | None = None
    ) -> Transaction:
        """Store the half message and return the handle that ends the transaction.

        Raises `LocalError` for a message that cannot be sent (including a delayed one), and `BrokerError` or
        `TransportError` when it was not stored, or may not have been. The broker can then check a message id whose
        local transaction never ran; `check` should return `ROLLBACK` for it.
        """
        self.check_open()
        self.start()
        topic = message.topic if queue is None else queue.topic
        if topic not in self._topics:
            raise LocalError(f"topic {topic!r} is not one of the producer's topics: {', '.join(sorted(self._topics))}")
        if message_id is not None:
            self._ended.forget(message_id)
        result, address = self._producer.send_half(message, queue, message_id=message_id)
        half = stored_half(self._routes.wire_name(result.queue.topic), result)
        transaction = Transaction(self, self._pool.leading_to(address), half, result)
        if result.status is not SendStatus.OK:
            # As in Java: if a crash can lose the half message, the local transaction must not run.
            with suppress(RmqioError):
                transaction.rollback()
            what = f"half message to {result.queue}, rolled back because it is not safe"
            raise broker_error(result.status.value, result.status.name, what)
        self._open[result.message_id] = transaction
        return transaction

    def send(
        self,
        message: Message,
        execute: Callable[[str], Decision],
        queue: MessageQueue | None = None,
        *,
        message_id: str | None = None,
    ) -> TransactionResult:
        """Store the half message, run the local transaction `execute(message_id)`, and apply its decision.

        When `execute` raises, the decision is left to `check`, and the error is raised. Also raises as `begin` and
        `Transaction.commit`.
        """
        transaction = self.begin(message, queue, message_id=message_id)
        try:
            decision = execute(transaction.message_id)
            if not isinstance(decision, Decision):
                raise LocalError(f"execute returned {decision!r}; it must return COMMIT, ROLLBACK or UNKNOWN")
        except BaseException:
            transaction.leave()
            raise
        transaction.end(decision)
        return TransactionResult(transaction.half, decision)

    # ---- for transactions --------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise `LocalError` when this producer is closed or belongs to another process."""
        if self._is_closed:
            raise LocalError("this transaction producer is closed")
        if self._pid != os.getpid():
            raise LocalError("this transaction producer belongs to the parent process: create one in this process")

    def end(self, connection: Connection, half: HalfMessage, decision: Decision, *, from_check: bool = False) -> None:
        """Send the end to the broker once. Raises `RmqioError` if unconfirmed; UNKNOWN is never confirmed."""
        command = end_transaction(self._group, half, decision, from_check=from_check)
        # A request that fails to start did not reach the broker whole, so it may be repeated. Later failures may not.
        call = call_with_retries(lambda: connection.start(command), self._options, self._environment)
        if decision is UNKNOWN:
            call.forget()
            return
        answer = call.result(self._options.request_timeout_ms)
        if answer.code == GoAway.number:  # not processed: the broker is shutting down gracefully
            call = connection.start(command)
            answer = call.result(self._options.request_timeout_ms)
        requests.expect_success(answer, f"{decision.name.lower()} of the transaction of message {half.message_id}")
        self._ended.add(half.message_id, call.session)

    def forget(self, transaction: Transaction) -> None:
        """Forget a transaction that has ended here: from now on `check` is called for it."""
        if self._open.get(transaction.message_id) is transaction:  # not a newer transaction with the same id
            del self._open[transaction.message_id]

    # ---- serving -----------------------------------------------------------------------------------------------------

    def serve(self, timeout_ms: float) -> int:
        """Send due heartbeats and answer checks for this time; return how many checks were answered.

        For `background=False`: call it from one thread, at least every `options.heartbeat_ms` (a broker forgets a
        producer that is silent for 120 s). Raises `LocalError` if the background thread does it. Brokers' errors are
        logged.
        """
        self.check_open()
        if self._has_thread:
            raise LocalError("this transaction producer has a background thread: create it with background=False")
        return self._serve(timeout_ms)

    def _serve(self, timeout_ms: float) -> int:
        answered = 0
        deadline = self._environment.clock() + timeout_ms / 1000
        with self._serving:
            while True:
                while not self._is_closed and (check := self._inbox.next()) is not None:
                    answered += self._answer(*check)
                left_ms = (deadline - self._environment.clock()) * 1000
                if self._is_closed or left_ms <= 0:
                    return answered
                self._check_back.register(self._masters())
                self._check_back.wait(min(left_ms, _STEP_MS))

    def _masters(self) -> set[str]:
        """Return the masters of the topics' brokers, as far as they can be found now."""
        found: set[str] = set()
        for topic in self._topics:
            try:
                route = self._routes.route(topic)
            except RmqioError as error:
                _LOGGER.info("transactions: no route of topic %r: %s", topic, error)
                continue
            found |= {data.master for data in route.brokers.values() if data.master is not None}
        return found

    def _answer(self, address: str, command: Command) -> bool:
        try:
            half, record = parse_check(command)
            connection = self._pool.leading_to(address)
        except RmqioError as error:
            _LOGGER.error("broker %s sent a check of a transaction that cannot be read: %s", address, error)
            return False
        transaction = self._open.get(half.message_id)
        if transaction is not None:
            transaction.moved(connection, half)
            return False  # it still runs here; its end goes to the new position
        # A check of a transaction that has ended here is dropped: it is about a copy made for the check.
        is_copy = self._ended.is_ended(half.message_id, connection.session)
        decision = ROLLBACK if is_copy else self._ask(record)
        try:
            self.end(connection, half, decision, from_check=True)
        except RmqioError as error:
            _LOGGER.warning("check of message %s: broker %s will ask again: %s", half.message_id, address, error)
            return False
        return True

    def _ask(self, record: Record) -> Decision:
        names = self._routes.users_names([record.topic])
        try:
            decision = self._check(record._replace(topic=names[0]) if names else record)
        except Exception:
            _LOGGER.exception("the check of message %s failed; the broker will ask again", record.message_id)
            return UNKNOWN
        if not isinstance(decision, Decision):
            _LOGGER.error(
                "the check of message %s returned %r, not COMMIT, ROLLBACK or UNKNOWN", record.message_id, decision
            )
            return UNKNOWN
        return decision

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._serve(_STEP_MS)
            except Exception:
                if not self._is_closed:
                    _LOGGER.exception("the thread of %r continues after a failure", self)
                    self._environment.sleep(_STEP_MS / 1000)

    def close(self) -> None:
        """Stop the thread and close the connections. Idempotent. Open transactions are left to `check`."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pid == os.getpid():
            self._inbox.wakeup.wake()
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join(self._options.request_timeout_ms / 1000)
            if self._open:
                _LOGGER.warning("%r closes: the broker will check open transactions with other group members", self)
        self._producer.close()
        self._pool.close()
