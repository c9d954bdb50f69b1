"""Exactly-once writes: a gate that holds back messages that are already stored, and marks that move the position."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import apache_beam as beam

from rmqio import repeats
from rmqio.errors import RmqioError
from rmqio.model import Message, MessageQueue, SendResult
from rmqio.sending.batches import ProducerBatch
from rmqio.sending.certain import stored_ids
from rmqio.transforms.writing.sink_state import LANDING_S, Offsets, Sink, as_list, from_list, state_of

MARKS: Final = "marks"
"""The tag of the output for marks: bytes, one mark for each bundle that has sent something."""

OnFound = Callable[[Sequence[Any], Sequence[Message], Sequence[SendResult]], None]


class WriteOnce:
    """The gate of one writing DoFn instance, and the lookup of its producer. Used by one thread.

    A bundle may be a repeat if its runner says so (`attempts`), or if its instance has not looked back yet.

    Args:
      sink: the sink that it writes to.
      on_found: called with messages that are already stored, and the places where they are.
    """

    def __init__(self, sink: Sink, on_found: OnFound, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sink = sink
        self._state = state_of(sink)
        self._on_found = on_found
        self._sleep = sleep
        self._looked: dict[str, int] = {}
        """The generation of each topic at its last look-back."""
        self._looks = self._is_repeat = True
        self._attempt: repeats.Attempt | None = None
        self._commits_together = False
        self._safe: Offsets = {}
        self._began = 0
        self._has_sent = False

    # ---- bundles ---------------------------------------------------------------------------------------------------

    def begin_bundle(self) -> None:
        """Prepare for a new bundle."""
        attempt = repeats.current_attempt()
        if attempt is not None:
            self._is_repeat = attempt.may_be_repeat
            self._looks = attempt.may_be_repeat or self._state.is_started_again
            self._commits_together = attempt.commits_together
            if attempt is not self._attempt:  # bundles of one attempt look once
                self._attempt = attempt
                self._looked.clear()
            if not self._looks:
                self._state.forget()
        # Bundles that are already committed belong to an earlier commit than this one: see `mark`.
        self._safe, self._began = self._state.all_final(), repeats.tick()
        self._has_sent = False

    def mark(self) -> bytes | None:
        """Return the sink's position for the bundle's commit. Call it when the bundle has sent everything.

        The later of two commits covers what all writers had sent before the earlier one. It does not cover what others
        send at the same time as this bundle, which may belong to the next commit. A bundle's commit therefore makes
        safe what had been stored by bundles that were committed when this one began. If everything is committed
        together, and finalizers run before the next bundles begin or know nothing about them, it makes safe what is
        stored by now.
        """
        if self._sink.group is None or not self._has_sent:
            return None
        found = {
            "process": self._state.token,
            "together": self._commits_together,
            "began": self._began,
            "safe": as_list(self._safe),
            "stored": as_list(self._state.all_stored()),
        }
        return json.dumps(found, separators=(",", ":")).encode()

    # ---- the gate --------------------------------------------------------------------------------------------------

    @contextmanager
    def sending(self, topic: str) -> Iterator[None]:
        state, patience_s = self._state, self._sink.look_back.outage_timeout_s
        if not state.is_open(topic):
            self._alone(lambda: None if state.is_open(topic) else state.open_topic(topic))
        while True:
            with state.turns.taken(alone=self._looks and state.is_mixed, timeout_s=patience_s):
                if not self._must_look(topic):
                    yield
                    return
            self._alone(lambda: self._look(topic))

    def take_out(self, batch: ProducerBatch) -> ProducerBatch:
        ids = [each or "" for each in batch.ids]
        places = self._state.there(batch.queue.topic, ids) if self._looks else None
        if places is None or not any(places):
            return batch
        left, found = batch.parted([place is None for place in places])
        results = [
            SendResult(place[0], place[1], message_id, "")
            for place, message_id in zip(places, ids, strict=True)
            if place is not None
        ]
        self._on_found(found.origins, found.messages, results)
        return left

    def stored(self, results: Sequence[SendResult]) -> None:
        state = self._state
        for queue, last in _lasts(results).items():
            state.stored(queue, last)
        if self._looks and state.is_mixed:  # a replaced instance, or one that repeats this one's work, must find it
            for queue in {result.queue for result in results}:
                state.add_known(queue, [(each[1], each[2]) for each in results if each[0] == queue])
        self._has_sent = True

    def _look(self, topic: str) -> None:
        if self._must_look(topic):
            is_new, stays = topic not in self._looked, not self._commits_together
            self._looked[topic] = self._state.look_back(topic, is_new=is_new, stays=stays)

    def _must_look(self, topic: str) -> bool:
        generation = self._state.generations.get(topic, 0)
        if not self._is_repeat:  # a run that was started again by hand: one look per process is enough
            return self._looks and not generation
        return self._looks and self._looked.get(topic, -1) < generation

    # ---- the lookup ------------------------------------------------------------------------------------------------

    def floor(self, queue: MessageQueue) -> int:
        """See `certain.Lookup`."""
        state = self._state
        if queue not in state.floors:  # a new queue
            state.open_topic(queue.topic)
        return state.floors.get(queue, 0)

    def find(self, queue: MessageQueue, begin: int, ids: Sequence[str]) -> Mapping[str, int]:
        """See `certain.Lookup`."""
        client, wanted = self._state.client, frozenset(ids)
        client.max_offset(queue)  # raises while the broker is unavailable
        self._sleep(LANDING_S)  # messages that it received before may be stored only now
        ranges = {queue: (begin, client.max_offset(queue))}
        found: dict[str, int] = {}
        for _, places in stored_ids(client, ranges):
            for offset, message_id in places:
                if message_id in wanted:
                    found.setdefault(message_id, offset)
        return found

    def _alone(self, look: Callable[[], object]) -> None:
        """Looks in a turn alone. While brokers are unavailable, it retries, and others take their turns in between."""
        patience_s = self._sink.look_back.outage_timeout_s
        deadline = time.monotonic() + patience_s
        while True:
            try:
                with self._state.turns.taken(alone=True, timeout_s=patience_s):
                    look()
                return
            except RmqioError as error:
                if not (error.retriable or error.stale_route) or time.monotonic() >= deadline:
                    raise
            self._sleep(LANDING_S)


def _lasts(results: Sequence[SendResult]) -> dict[MessageQueue, int]:
    lasts: dict[MessageQueue, int] = {}
    for queue, offset, *_ in results[-1:] if len({result[0] for result in results}) == 1 else results:
        lasts[queue] = max(offset, lasts.get(queue, 0))
    return lasts


class MovePosition(beam.DoFn):
    """Moves the position of the sink when a bundle's marks are committed. It is a separate DoFn, so that the write does
    not need a finalizer for each message.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def process(self, element: bytes, finalizer: Any = beam.DoFn.BundleFinalizerParam) -> None:
        finalizer.register(functools.partial(committed, self._sink, element))


def committed(sink: Sink, mark: bytes) -> None:
    """The finalizer's callback. Picklable as a partial."""
    state = state_of(sink)
    found = json.loads(mark)
    stored = from_list(found["stored"])
    if found["together"]:
        state.move(stored)
        return
    state.move(from_list(found["safe"]), found["began"])
    if found["process"] == state.token:
        state.note_final(stored)
