"""`LookBack`: how a writer that may repeat work finds out which messages the sink already has."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass

from rmqio.errors import LocalError


@dataclass(frozen=True, slots=True)
class LookBack:
    """A writer that may repeat an earlier one's work first reads the ids in the sink, and sends only missing messages.

    For `WriteToRocketMQ(exactly_once=LookBack(group="..."))`. See docs/write.md for the conditions.

    Args:
      group: a consumer group of the sink. Its offsets are the positions where a look-back starts. The group belongs to
        one writing pipeline, and nobody else may commit to it. None: the write's producer group, if that is given.
      since: look back at least to this time (Unix milliseconds, or a datetime with a time zone), by the broker's clock.
        For a bounded pipeline that you start again by hand: each process then looks back, whatever its runner reports.
        None: look back to when the pipeline was built.
      redo_within_s: after a restart, everything that was sent but not committed comes again within this time. Until
        then the position does not move. Runners that commit all work together (Spark) do not need it.
      outage_timeout_s: how long a send with an unknown outcome waits for its broker before the bundle fails.
      max_messages: maximum number of messages to look back at, at 24 to 37 bytes each; more is an error.
    """

    group: str | None = None
    since: int | dt.datetime | None = None
    redo_within_s: float = 300.0
    outage_timeout_s: float = 120.0
    max_messages: int = 20_000_000

    def __post_init__(self) -> None:
        if self.group is not None and not isinstance(self.group, str):
            raise LocalError(f"LookBack.group is {self.group!r}; it must be the name of a consumer group")
        if isinstance(self.since, dt.datetime):
            if self.since.tzinfo is None:
                raise LocalError(f"LookBack.since is {self.since!r} and has no time zone: give one, e.g. tzinfo=UTC")
        elif self.since is not None and (isinstance(self.since, bool) or not isinstance(self.since, int)):
            raise LocalError(f"LookBack.since is {self.since!r}; it must be Unix milliseconds or a datetime")
        for name in ("redo_within_s", "outage_timeout_s", "max_messages"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise LocalError(f"LookBack.{name} is {value!r}; it must be a number greater than 0")
        if not isinstance(self.max_messages, int):
            raise LocalError(f"LookBack.max_messages is {self.max_messages!r}; it must be a whole number")
        if self.since_ms is not None and self.since_ms < 0:
            raise LocalError(f"LookBack.since is {self.since!r}; it must be a time since 1970")

    @property
    def since_ms(self) -> int | None:
        """`since` in Unix milliseconds."""
        return int(self.since.timestamp() * 1000) if isinstance(self.since, dt.datetime) else self.since
