"""The tracers of a process: one per cluster and topic, which all reads and writes share."""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import is_dataclass, replace
from typing import Any

from rmqio.interfaces import ClientFactory
from rmqio.options import ClientOptions
from rmqio.sending.traces.tracer import Tracer
from rmqio.wire.traces import TRACE_TOPIC

_lock = threading.Lock()
_tracers: dict[tuple[ClientFactory, str], Tracer] = {}


def shared_tracer(factory: ClientFactory, trace: bool | str) -> Tracer | None:
    """Return this process's tracer. `trace`: as the options of reads and writes say it; False: there is none."""
    if not trace:
        return None
    topic = TRACE_TOPIC if trace is True else trace
    with _lock:
        found = _tracers.get((factory, topic))
        if found is None:
            found = _tracers[factory, topic] = Tracer(_for_traces(factory, topic), topic)
        return found


def flush_traces(timeout_s: float = 0.5) -> None:
    """Wait until all traces of this process are sent, at most for this time per topic."""
    with _lock:
        tracers = list(_tracers.values())
    for tracer in tracers:
        tracer.flush(timeout_s)


def close_tracers() -> None:
    """Flush and end the tracers of this process. The next use creates new ones."""
    with _lock:
        tracers = list(_tracers.values())
        _tracers.clear()
    for tracer in tracers:
        tracer.close()


def _for_traces(factory: Any, topic: str) -> ClientFactory:
    """The factory of our own clients, for a topic that is never created, and in no namespace if it is RocketMQ's."""
    options = getattr(factory, "options", None)
    if not isinstance(options, ClientOptions) or not is_dataclass(factory):
        return factory  # type: ignore[no-any-return]  # a user's own
    namespace = "" if topic == TRACE_TOPIC else options.namespace
    changed = replace(options, create_topics=False, inner_batches=False, namespace=namespace)
    return replace(factory, options=changed)  # type: ignore[type-var, return-value]


def _forget_after_fork() -> None:
    # Their threads are the parent's, and one of them may hold a lock.
    global _lock
    _lock = threading.Lock()
    for tracer in _tracers.values():
        tracer.begin_anew()


atexit.register(close_tracers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
