"""The interface between sending and the code that handles the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rmqio.model import Message, SendResult


class Outcomes(Protocol):
    """Receives the outcome of messages. `element` and `origin` are passed through from the message unchanged.

    An error that it raises is raised by the call that settles the message, once nothing is in flight.
    """

    def sent(
        self, origins: Sequence[Any], messages: Sequence[Message], results: Sequence[SendResult], latency_s: float
    ) -> None:
        """A batch was stored: one result per message, in order."""
        ...

    def failed(self, element: Any, origin: Any, message: Message | None, topic: str | None, error: Exception) -> None:
        """One message can never be sent, because of `error`. Others of its batch may have been."""
        ...
