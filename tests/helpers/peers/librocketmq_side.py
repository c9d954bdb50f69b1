"""Runs tests' calls to the vendor's library in a separate process, so that a crash of the library only ends that one.

`Side.call` calls the functions there. They share one producer.
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
from tests.helpers.waiting import at_most

P = ParamSpec("P")
T = TypeVar("T")


class Side:
    """The process. It is killed at the end, whatever the library does. `home`: the folder for the library's log."""

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
        """Returns or raises what the function returns or raises there."""
        return self._process.submit(function, *arguments, **named).result(at_most(60))


def _move_to(home: str) -> None:
    os.environ["HOME"] = home


_producer: Producer | None = None


def producer() -> Producer:
    assert _producer is not None
    return _producer


def open_producer(options: ClientOptions) -> None:
    """Replaces the producer."""
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
    """Sends all messages at the same time, each with `send`."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(producer().send, messages))


def submit(
    batches: Iterable[tuple[list[Message], MessageQueue]], ordered: bool, ids: Sequence[str] | None = None
) -> list[SendResult]:
    """Submits all batches before it waits for the first result. Waits for all results, then raises the first error."""
    pending = [producer().submit(messages, queue, ordered=ordered, message_ids=ids) for messages, queue in batches]
    results: list[SendResult] = []
    errors: list[RmqioError] = []
    for one in pending:
        try:
            results += one.result()
        except RmqioError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results


def vendors_batch(name_server: str, topic: str, bodies: Sequence[str]) -> int:
    """Sends a batch with the vendor's own module and returns its status."""
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
    """Runs a pipeline that sends messages with their bodies as ids. Only the one with an empty property must fail."""
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
