"""What a client takes from outside: how to connect, the time, and chance. Tests pass their own."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from rmqio.client.connections.transport import Connect, connect_tcp
from rmqio.security import Credentials
from rmqio.wire.command import Command

OnPushed = Callable[[str, Command], bool]


@dataclass(frozen=True, slots=True)
class Environment:
    """The outside world of a client.

    Args:
      connect: opens a transport to `host:port`.
      clock: monotonic seconds.
      sleep: waits for so many seconds.
      random: a number in [0, 1). Not Python's shared generator: forked workers would all draw the same numbers.
      wall_clock: Unix time in seconds.
      on_pushed: is given each request that a server pushes, with the server's address, by whichever thread reads the
        socket; gives whether it takes it over. It must not block or raise. None: all are refused.
      credentials: what each request is signed with. None: they are not signed.
    """

    connect: Connect = connect_tcp
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.SystemRandom().random
    wall_clock: Callable[[], float] = time.time
    on_pushed: OnPushed | None = None
    credentials: Callable[[], Credentials] | None = None
