"""A producer without a network: a transport that answers each request at once. CPU of a batch send, part by part.

python -m bench.at_once [--messages 500000] [--repeats 7] [--size 100] [--profile]

This needs no broker, and shows what our process alone needs: microseconds of CPU per message in batches of 500.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import cycle
from typing import Final

from bench.ours import body
from bench.report import aligned, machine_text
from bench.sending import Work, encode, make
from rmqio.client.environment import Environment
from rmqio.client.sending.producer import RemotingProducer
from rmqio.interfaces import PendingSend
from rmqio.model import MessageQueue, SendStatus
from rmqio.options import ClientOptions
from rmqio.wire.codes import RequestCode
from rmqio.wire.messages.batch import MessageIds, send_results

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
            encoded = json.dumps(answer | {"extFields": self._stored if is_batch else {}}).encode()
            content = json.dumps(_ROUTE).encode() if is_route else b""
            self._answers += struct.pack(">II", 4 + len(encoded) + len(content), len(encoded)) + encoded + content

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
        targets, pending = cycle(work.queues), deque[PendingSend]()
        for messages in work.made():
            if len(pending) >= work.in_flight:
                pending.popleft().result()
            pending.append(producer.submit(messages, next(targets)))
        while pending:
            pending.popleft().result()


def answers(work: Work) -> None:
    """What the stand-in itself needs."""
    transport, request = AtOnce(work.batch), json.dumps({"code": 320, "opaque": 1, "x": "y" * 300}).encode()
    frame = struct.pack(">II", 4 + len(request), len(request)) + request
    for _ in range(0, len(work.bodies), work.batch):
        transport.send_all(frame, 0)
        transport.recv(1, 0)


def results(work: Work) -> None:
    """The results of all batches, with their ids."""
    ids = MessageIds()
    for _ in range(0, len(work.bodies), work.batch):
        taken = ids.take(work.batch)
        send_results(work.queues[0], 0, taken, list(taken), SendStatus.OK)


STEPS: Final[dict[str, Callable[[Work], None]]] = {
    "messages, by the benchmark": make,
    "messages, ids, encoding": encode,
    "ids, results": results,
    "the stand-in": answers,
    "Producer.submit and result, all of these": whole,
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--profile", action="store_true", help="show the functions that take the time")
    given = parser.parse_args(argv)
    queues = [MessageQueue("sending", "b", number) for number in range(8)]
    work = Work("ns:1", "b:1", queues, [body(number, given.size) for number in range(given.messages)], 500, 4)
    found: dict[str, list[float]] = {step: [] for step in STEPS}
    for number in range(given.repeats + 1):
        for step, function in STEPS.items():
            began = time.thread_time()
            function(work)
            if number:
                found[step].append(1e6 * (time.thread_time() - began) / given.messages)
    lines = [[step, f"{min(us):.3f}", f"{statistics.median(us):.3f}"] for step, us in found.items()]
    print(f"Machine: {machine_text()}. {given.messages:,} messages of {given.size} bytes, {given.repeats} repeats.")
    print(aligned([("us of CPU per message", "least", "median"), *lines], left={0}))
    if given.profile:
        profile = cProfile.Profile(time.thread_time)
        profile.runcall(whole, work)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
