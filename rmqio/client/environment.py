"""A client's dependencies on the outside: connecting, time and randomness. Tests pass their own."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from rmqio.client.transport import Connect, connect_tcp
from rmqio.options import ClientOptions
from rmqio.security import Credentials
from rmqio.wire.command import Command

# The name that identifies a client to its brokers.


def client_id(options: ClientOptions, owner: object) -> str:
    """Return the id of one object in this process. Each process has its own ids, also after a fork."""
    unit = f"@{options.unit_name}" if options.unit_name else ""  # as Java's clients put it
    return f"{options.client_id_prefix}{socket.gethostname()}@{os.getpid()}#{id(owner)}{unit}"


OnPushed = Callable[[str, Command], bool]


@dataclass(frozen=True, slots=True)
class Environment:
    """The outside world of a client.

    Args:
      connect: opens a transport to `host:port`.
      clock: monotonic seconds.
      sleep: waits for the given seconds.
      random: returns a number in [0, 1). Not Python's shared generator: forked workers would all draw the same numbers.
      wall_clock: Unix time in seconds.
      on_pushed: called with the server's address and each request that the server pushes, in the thread that reads the
        socket; returns whether it takes the request over. It must not block or raise. None: all are refused.
      credentials: the credentials that sign each request. None: requests are not signed.
    """

    connect: Connect = connect_tcp
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.SystemRandom().random
    wall_clock: Callable[[], float] = time.time
    on_pushed: OnPushed | None = None
    credentials: Callable[[], Credentials] | None = None
