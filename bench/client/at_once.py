"""A producer without a network: a transport that answers each request at once. CPU of a batch send, part by part.

python -m bench.client.at_once [--messages 500000] [--repeats 7] [--size 100] [--phases]

This needs no broker, and shows what our process alone needs: microseconds of CPU per message in batches of 500.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from typing import Any, Final
from unittest import mock

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from bench.client.ours import body
from bench.client.sending import Work, encode, make, send_all
from bench.common.report import aligned, machine_text
from rmqio.batches import Batch
from rmqio.client.environment import Environment
from rmqio.client.pending import InFlight, PendingRequest
from rmqio.client.producer import RemotingProducer
from rmqio.client.session import Session
from rmqio.model import MessageQueue, Record, SendStatus
from rmqio.options import ClientOptions, WriteOptions
from rmqio.transforms.writing.elements import MessageMaker
from rmqio.transforms.writing.write_fn import BatchWriteFn
from rmqio.wire.batch import BatchBuilder, BatchResults
from rmqio.wire.command import RequestCode
from rmqio.wire.ids import MessageIds

_ROUTE: Final = {
    "brokerDatas": [{"brokerAddrs": {"0": "b:1"}, "brokerName": "b", "cluster": "c"}],
    "queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": 8, "writeQueueNums": 8, "topicSysFlag": 0}],
}


class AtOnce:
    """Answers each request. A batch has as many ids as this says."""

    connects_by_reading = False

    def __init__(self, batch: int) -> None:
        self._answers = bytearray()
        ids = ",".join(f"7F00000100002A9F{number:016X}" for number in range(batch))
        self._stored = {"queueId": "0", "queueOffset": "0", "msgId": ids, "TRACE_ON": "true", "MSG_REGION": "x"}

    def wait_connected(self, timeout_ms: float) -> bool:
        return True

    def send_all(self, data: bytes, timeout_ms: float) -> None:
        at = 0
        while at < len(data):
            size, header_size = struct.unpack_from(">II", data, at)
            header = json.loads(data[at + 8 : at + 8 + header_size])
            at += 4 + size
            is_route = header["code"] == RequestCode.GET_ROUTEINFO_BY_TOPIC
            is_batch = header["code"] == RequestCode.SEND_BATCH_MESSAGE
            answer = {"code": 0, "flag": 1, "language": "JAVA", "opaque": header["opaque"], "version": 1}
            answer |= {"extFields": self._stored if is_batch else {}}
            encoded = json.dumps(answer, separators=(",", ":")).encode()  # without white space, as brokers do
            content = json.dumps(_ROUTE).encode() if is_route else b""
            self._answers += struct.pack(">II", 4 + len(encoded) + len(content), len(encoded)) + encoded + content

    def send_parts(self, head: bytes, body: bytes, timeout_ms: float) -> None:
        self.send_all(head, timeout_ms)

    def recv(self, max_bytes: int, timeout_ms: float) -> bytes | None:
        if not self._answers:
            return None
        found = bytes(self._answers)
        self._answers.clear()
        return found

    def fileno(self) -> int:
        return -1

    def shutdown(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


def whole(work: Work) -> None:
    environment = Environment(connect=lambda *_: AtOnce(work.batch))
    options = ClientOptions(name_servers="ns:1", max_in_flight=work.in_flight)
    with closing(RemotingProducer(options, "bench", environment=environment)) as producer:
        send_all(work, producer)


def answers(work: Work) -> None:
    """The work of the stand-in itself."""
    transport, request = AtOnce(work.batch), json.dumps({"code": 320, "opaque": 1, "x": "y" * 300}).encode()
    frame = struct.pack(">II", 4 + len(request), len(request)) + request
    for _ in range(0, len(work.bodies), work.batch):
        transport.send_all(frame, 0)
        transport.recv(1, 0)


def results(work: Work) -> None:
    """The results of all batches, with their ids, for those who look at them."""
    ids, offset_ids = MessageIds(), ",".join(MessageIds().take(work.batch))
    for _ in range(0, len(work.bodies), work.batch):
        BatchResults(work.queues[0], 0, ids.take(work.batch), offset_ids, SendStatus.OK).all()


class Factory:
    """Makes such producers for a writing DoFn."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def producer(self, group: str) -> RemotingProducer:
        environment = Environment(connect=lambda *_: AtOnce(self._work.batch))
        return RemotingProducer(
            ClientOptions("ns:1", max_in_flight=self._work.in_flight), group, environment=environment
        )


def write(work: Work, batches: Iterable[list[Any]], *, with_sent: bool) -> None:
    """One bundle of the DoFn of `WriteToRocketMQ(batches=True)`, without Beam."""
    factory: Any = Factory(work)
    options = WriteOptions(max_batch_messages=work.batch)
    fn = BatchWriteFn(MessageMaker("sending"), factory, "bench", options, with_sent=with_sent)
    fn.setup()
    fn.start_bundle()
    windows = (GlobalWindow(),)
    for batch in batches:
        deque(fn.process(batch, WindowedValue(batch, 0, windows)) or (), 0)
    deque(fn.finish_bundle(), 0)
    fn.teardown()


def records(work: Work) -> list[Batch[Record]]:
    """Batches as a read emits them."""
    queue, found = MessageQueue("source", "b", 0), []
    for begin in range(0, len(work.bodies), work.batch):
        offsets = range(begin, min(begin + work.batch, len(work.bodies)))
        rest: Any = (1, 2, b"KEYS\x0112\x02", 0, 0, 0, 0, 0, b"", b"", 0, 0)
        found.append(Batch([Record(*queue, at, work.bodies[at], *rest) for at in offsets], queue, offsets))
    return found


STEPS: Final[dict[str, Callable[[Work], None]]] = {
    "messages, by the benchmark": make,
    "messages, ids, encoding": encode,
    "results with their ids, if looked at": results,
    "the stand-in": answers,
    "Producer.submit and result, all of these": whole,
}


_PHASES: Final[Sequence[tuple[Any, str]]] = (
    (MessageIds, "take"),
    (BatchBuilder, "add_all"),
    (RemotingProducer, "_batch"),
    (InFlight, "admit"),
    (AtOnce, "send_all"),
    (PendingRequest, "start"),
    (RemotingProducer, "submit"),
    (Session, "pump"),
    (PendingRequest, "_results"),
    (PendingRequest, "result"),
)


def phases(work: Work) -> list[list[str]]:
    """Microseconds per message in each method, with what it calls: its median call, by the clock, times its calls."""
    times: dict[str, list[float]] = {}

    def watched(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                times.setdefault(name, []).append(time.perf_counter() - began)

        return call

    with ExitStack() as stack:
        for owner, name in _PHASES:
            stack.enter_context(
                mock.patch.object(owner, name, watched(f"{owner.__name__}.{name}", getattr(owner, name)))
            )
        whole(work)
    costs = {name: 1e6 * statistics.median(seconds) * len(seconds) for name, seconds in times.items()}
    return [[name, f"{us / len(work.bodies):.3f}"] for name, us in costs.items()]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.client.at_once", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--phases", action="store_true", help="show the time in the methods of a send, too")
    given = parser.parse_args(argv)
    queues = [MessageQueue("sending", "b", number) for number in range(8)]
    work = Work("ns:1", "b:1", queues, [body(number, given.size) for number in range(given.messages)], 500, 4)
    found: dict[str, list[float]]
    lists, read = list(work.made()), records(work)
    steps = STEPS | {
        "the writing DoFn, lists of messages, with `sent`": lambda work: write(work, lists, with_sent=True),
        "the writing DoFn, lists of messages": lambda work: write(work, lists, with_sent=False),
        "the writing DoFn, batches of records": lambda work: write(work, read, with_sent=False),
    }
    found = {step: [] for step in steps}
    for number in range(given.repeats + 1):
        for step, function in steps.items():
            began = time.thread_time()
            function(work)
            if number:
                found[step].append(1e6 * (time.thread_time() - began) / given.messages)
    lines = [[step, f"{min(us):.3f}", f"{statistics.median(us):.3f}"] for step, us in found.items()]
    print(f"Machine: {machine_text()}. {given.messages:,} messages of {given.size} bytes, {given.repeats} repeats.")
    print(aligned([("us of CPU per message", "least", "median"), *lines], left={0}))
    if given.phases:
        print(aligned([("method", "us per message"), *phases(work)], left={0}))


if __name__ == "__main__":
    main()
