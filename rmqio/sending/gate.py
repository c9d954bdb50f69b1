"""The interface between sending and whoever knows what is in the sink already."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqio.model import SendResult
    from rmqio.sending.batch import Batch


class Gate(Protocol):
    """Every batch goes through it on its way out."""

    def sending(self, topic: str) -> AbstractContextManager[None]:
        """Around all that is done to send a batch: nobody who looks what is there meets it half way."""
        ...

    def take_out(self, batch: Batch) -> Batch:
        """The batch without the messages that are there; their outcome is settled."""
        ...

    def stored(self, results: Sequence[SendResult]) -> None:
        """A batch was stored."""
        ...
