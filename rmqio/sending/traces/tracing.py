"""The traces of sends and of reads: entries from what was sent, and from what was read."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqio.interfaces import ClientFactory
from rmqio.model import Message, Record, SendResult
from rmqio.sending.traces.process import shared_tracer
from rmqio.sending.traces.tracer import Entry, Tracer
from rmqio.wire import traces
from rmqio.wire.traces import TRACE_TOPIC, Traced

_TOO_MUCH: Final = "more is traced than can be sent, or the topic is missing"


class SendTrace:
    """Traces what a producer group has stored."""

    def __init__(self, tracer: Tracer, group: str) -> None:
        self._tracer = tracer
        self._group = group

    @classmethod
    def of(cls, factory: ClientFactory, group: str, trace: bool | str) -> SendTrace | None:
        """The trace of a write, by its option `trace`; None: nothing is traced."""
        tracer = shared_tracer(factory, trace)
        return None if tracer is None else cls(tracer, group)

    def sent(self, messages: Sequence[Message], results: Sequence[SendResult], latency_s: float) -> None:
        """Trace stored messages of one topic: one entry each, so that tools find each by its id."""
        topic = results[0].queue.topic if results else ""
        if topic in (self._tracer.topic, TRACE_TOPIC):  # else each trace would have a trace
            return
        room = self._tracer.room()
        latency_ms = round(latency_s * 1000)
        started_ms = round(time.time() * 1000) - latency_ms
        entries = [
            Entry(
                traces.sent(self._group, topic, message, result, started_ms=started_ms, latency_ms=latency_ms),
                " ".join((result.message_id, *message.keys)),
            )
            for message, result in zip(messages[: max(0, room)], results, strict=False)
        ]
        self._tracer.add(entries)
        if len(messages) > len(entries):
            self._tracer.drop(len(messages) - len(entries), _TOO_MUCH)

    def flush(self) -> None:
        """As `ReadTrace.flush`."""
        self._tracer.flush()


class Taken(NamedTuple):
    """Messages that were handed on: what `ReadTrace.handled` needs."""

    request_id: str
    messages: Sequence[Traced]
    at: float


class ReadTrace:
    """Traces what a consumer group reads."""

    def __init__(self, tracer: Tracer, group: str) -> None:
        self._tracer = tracer
        self._group = group

    @classmethod
    def of(cls, factory: ClientFactory, group: str, trace: bool | str) -> ReadTrace | None:
        """The trace of a read, by its option `trace`; None: nothing is traced."""
        tracer = shared_tracer(factory, trace)
        return None if tracer is None else cls(tracer, group)

    def read(self, records: Sequence[Record]) -> Taken:
        """Trace records that are about to be handed on, without those that their broker does not want traced."""
        request_id, room = uuid.uuid4().hex.upper(), max(0, self._tracer.room() // 2)  # the other half: `handled`
        if not records or records[0].topic in (self._tracer.topic, TRACE_TOPIC):
            return Taken(request_id, (), 0.0)
        messages = traces.traced(records[:room])
        texts = traces.read(
            self._group,
            request_id,
            messages,
            region=traces.region_of(records[0]),
            now_ms=round(time.time() * 1000),
        )
        self._add(messages, texts)
        if len(records) > room:
            self._tracer.drop(2 * (len(records) - room), _TOO_MUCH)
        return Taken(request_id, messages, time.monotonic())

    def handled(self, taken: Taken) -> None:
        """Trace that the pipeline has taken the records."""
        messages = taken.messages
        if not messages:
            return
        cost_ms, now_ms = int((time.monotonic() - taken.at) * 1000 / len(messages)), round(time.time() * 1000)
        self._add(messages, traces.handled(self._group, taken.request_id, messages, now_ms=now_ms, cost_ms=cost_ms))

    def flush(self) -> None:
        """Wait for half a second at most until everything is sent: the process may be about to end."""
        self._tracer.flush()

    def _add(self, messages: Sequence[Traced], texts: Sequence[str]) -> None:
        self._tracer.add(
            [Entry(text, f"{each.message_id} {each.keys}") for text, each in zip(texts, messages, strict=True)]
        )
