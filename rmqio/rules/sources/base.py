"""The protocol of sources."""

from __future__ import annotations

from typing import Protocol

from rmqio.rules.formats.base import RuleText


class Source(Protocol):
    """Texts of rules that change. Picklable."""

    def texts(self) -> tuple[RuleText, ...]:
        """Returns all texts, of one moment. Raises `RuleError` if they cannot be read as a whole."""
        ...

    def signature(self) -> str:
        """Returns a text that changes when the texts do. It is much cheaper than reading them."""
        ...
