"""The interface between sending and the code that knows what is already in the sink."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqio.model import SendResult
    from rmqio.sending.batch import ProducerBatch


class Gate(Protocol):
    """Every batch passes it before it is sent."""

    def sending(self, topic: str) -> AbstractContextManager[None]:
        """Wrap everything done to send a batch, so that nobody looks into the sink in between."""
        ...

    def take_out(self, batch: ProducerBatch) -> ProducerBatch:
        """Return the batch without messages that are already stored; their outcome is settled."""
        ...

    def stored(self, results: Sequence[SendResult]) -> None:
        """Note that a batch was stored."""
        ...
