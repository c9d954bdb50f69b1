"""The configuration of a read, which its DoFns and its planner share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmqio.claims.check import ClaimCheck
from rmqio.interfaces import ClientFactory
from rmqio.model import MessageFilter
from rmqio.options import ReadOptions
from rmqio.start import StartFrom, StopAt
from rmqio.transforms.reading.pacing import RateLimit
from rmqio.transforms.reading.watermark import TimestampOf


@dataclass(frozen=True)
class ReadConfig:
    """The configuration of the transform, checked and picklable."""

    factory: ClientFactory
    group: str | None
    start: StartFrom
    stop: StopAt | None
    message_filter: MessageFilter
    deserializer: Any
    timestamp_of: TimestampOf
    options: ReadOptions
    batches: bool = False
    errors_to_output: bool = False
    claim_check: ClaimCheck | None = None
    rate_limit: RateLimit | None = None
    read_id: str = ""
    """The id of the read, under which its commits wait for the end of a bounded pipeline (`endings`)."""
    notes_as: str | None = None
    """The id under which the read notes what a restart reads again (`restarts`). None: the runner has checkpoints."""

    @property
    def committed_group(self) -> str | None:
        """The group whose offsets are committed."""
        return self.group if self.options.commit_offsets else None
