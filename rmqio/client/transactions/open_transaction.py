"""A half message that waits for its commit or rollback."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from rmqio.errors import LocalError, RmqioError
from rmqio.model import SendResult
from rmqio.wire.transactions import Decision, HalfMessage

if TYPE_CHECKING:
    from rmqio.client.connections.connection import Connection


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
