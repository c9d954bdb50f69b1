"""How long the supervisor of jobs waits for what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in seconds.

    Attributes:
      poll: between two looks at the folder.
      tick: the longest time until an ended process or a request is noticed.
      grace: how long a job may take to end by itself.
      hurry: how long it may take after a second interrupt, before it is killed.
      linger: how long processes that it has left behind may take to end.
      first_delay, most_delay: until the first restart, and at most; it doubles each time.
      steady: a job that has run for so long begins with the first delay again.
    """

    poll: float = 1.0
    tick: float = 0.2
    grace: float = 60.0
    hurry: float = 10.0
    linger: float = 5.0
    first_delay: float = 1.0
    most_delay: float = 300.0
    steady: float = 600.0

    def delay(self, failures: int) -> float:
        """Returns the delay after so many failures in a row."""
        return min(self.most_delay, self.first_delay * 2.0 ** min(max(failures - 1, 0), 32))
