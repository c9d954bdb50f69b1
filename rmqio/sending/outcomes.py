"""The interface between sending and whoever wants to know what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rmqio.model import Message, SendResult


class Outcomes(Protocol):
    """Told what became of messages. `element` and `origin` are what was given with a message; nothing looks at them.

    What it raises is raised by the call that settles the message, when nothing is in flight any more.
    """

    def sent(
        self, origins: Sequence[Any], messages: Sequence[Message], results: Sequence[SendResult], latency_s: float
    ) -> None:
        """A batch was stored: one result per message, in order."""
        ...

    def failed(self, element: Any, origin: Any, message: Message | None, topic: str | None, error: Exception) -> None:
        """One message can never be sent, because of `error`. Others of its batch may have been."""
        ...
