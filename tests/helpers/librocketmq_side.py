"""What `test_librocketmq` does with the vendor's library, in a process of its own: if the library crashes, that ends.

The functions are called there by `Side.call`; they keep one producer.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio.errors import RmqioError
from rmqio.interfaces import Producer
from rmqio.librocketmq import LibrocketmqClientFactory
from rmqio.model import Message, MessageQueue, SendResult
from rmqio.options import ClientOptions, WriteOptions
from rmqio.transforms.write import WriteToRocketMQ

P = ParamSpec("P")
T = TypeVar("T")


class Side:
    """The process. It is killed at the end, whatever the library is about. `home`: where the library puts its log."""

    def __init__(self, home: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._process = ProcessPoolExecutor(1, spawn, _move_to, (str(home),))
        self._pid = self.call(os.getpid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call(close)
        finally:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._process.shutdown()

    def call(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What the function gives or raises there."""
        return self._process.submit(function, *arguments, **named).result(60)


def _move_to(home: str) -> None:
    os.environ["HOME"] = home


_producer: Producer | None = None


def producer() -> Producer:
    assert _producer is not None
    return _producer


def open_producer(options: ClientOptions) -> None:
    """In place of the one before."""
    global _producer
    close()
    _producer = LibrocketmqClientFactory(options).producer("librocketmq")


def close() -> None:
    global _producer
    if _producer is not None:
        _producer.close()
    _producer = None


def send(message: Message, queue: MessageQueue | None = None, message_id: str | None = None) -> SendResult:
    return producer().send(message, queue, message_id=message_id)


def send_in_threads(messages: Sequence[Message], threads: int) -> list[SendResult]:
    """At once, each by `send`."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(producer().send, messages))


def submit(
    batches: Iterable[tuple[list[Message], MessageQueue]], ordered: bool, ids: Sequence[str] | None = None
) -> list[SendResult]:
    """All are on their way before the first result is asked for; then all are, and the first error is raised."""
    pending = [producer().submit(messages, queue, ordered=ordered, message_ids=ids) for messages, queue in batches]
    results, errors = [], []
    for one in pending:
        try:
            results += one.result()
        except RmqioError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results


def vendors_batch(name_server: str, topic: str, bodies: Sequence[str]) -> int:
    """Sent by the vendor's own module as a batch; its status."""
    from rocketmq.client import Message as TheirMessage  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from rocketmq.client import Producer as TheirProducer

    theirs = TheirProducer("librocketmq-batch")
    theirs.set_namesrv_addr(name_server)
    theirs.start()
    messages = []
    for body in bodies:
        message = TheirMessage(topic)
        message.set_body(body)
        messages.append(message)
    status: int = theirs.send_batch(messages).status
    theirs.shutdown()
    return status


def write(topic: str, name_server: str, messages: list[Message], options: WriteOptions) -> None:
    """A pipeline that sends them; the ids are the bodies. What can be sent must be, and "too large" fails."""
    from apache_beam.testing.util import assert_that, equal_to

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        result = (
            pipeline
            | beam.Create(messages)
            | WriteToRocketMQ(
                topic,
                name_server=name_server,
                backend="librocketmq",
                id_fn=lambda message: message.body[:20].decode(),
                options=options,
            )
        )
        failed = result.failed | beam.Map(lambda one: (one.message.body[:20].decode(), one.error))
        assert_that(failed, equal_to([("empty property", "LocalError")]))
        sent = result.sent | "Ids" >> beam.Map(lambda one: one.message_id)
        expected = [message.body.decode() for message in messages if message.body != b"empty property"]
        assert_that(sent, equal_to(expected), label="sent")
