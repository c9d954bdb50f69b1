"""Requests to a schema registry while a statement is planned: one deadline for them all, and a word while they take."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from rmqio.serde.registry import RegistryUnavailable

T = TypeVar("T")

DEADLINE_S: Final = 15.0
"""How long all requests may take that the list of tables, or one table, needs."""
_SILENT_S: Final = 2.0
"""After what time the terminal says that a registry is waited for."""


def asked(url: str, ask: Callable[[], T]) -> T:
    """Returns the answer of a registry. Raises what `ask` does, and `RegistryUnavailable` after the deadline.

    A thread asks. Timeouts of the client do not suffice: they start again with each try and each piece of an answer.

    Args:
      url: of the registry, without credentials.
      ask: makes all the requests.
    """
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((ask(), None))
        except BaseException as error:  # noqa: BLE001 - raised again below
            answers.put((None, error))

    threading.Thread(target=run, name="rmqio registry", daemon=True).start()
    try:
        answer, error = _first(answers, url)
    except queue.Empty:
        raise RegistryUnavailable(
            f"schema registry {url} has not answered completely within {DEADLINE_S:g} s: it is overloaded, or this is "
            "not its address. Try again, or write CREATE TABLE, which asks no registry"
        ) from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]


def _first(
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]], url: str
) -> tuple[T | None, BaseException | None]:
    try:
        return answers.get(timeout=min(_SILENT_S, DEADLINE_S))
    except queue.Empty:
        # The shell completes names in another thread, beside a prompt.
        if threading.current_thread() is threading.main_thread():
            print(f"waiting up to {DEADLINE_S:g} s for schema registry {url}", file=sys.stderr, flush=True)
    return answers.get(timeout=max(DEADLINE_S - _SILENT_S, 0.0))
