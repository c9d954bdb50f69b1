"""Ports for servers that tests start."""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import Final

from rmqio.local.processes import LOOPBACK, free_port

_TRIES: Final = 200


def reserved_port(*, below: tuple[int, ...] = ()) -> int:
    """Returns a loopback port p that no other process gets, as none of p minus each number of `below`.

    They are bound until this process ends: also before their server starts, and while it is down. On Linux, a server
    may listen on such a port, if it sets SO_REUSEADDR, which servers do.
    """
    if sys.platform != "linux":
        return free_port(below=below)
    for _ in range(_TRIES):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            sockets = [held.enter_context(_bound(0))]
            port = int(sockets[0].getsockname()[1])
            sockets += [held.enter_context(_bound(port - distance)) for distance in below]
            for each in sockets:
                each.detach()
            return port
    raise OSError(f"no free port of {LOOPBACK} in {_TRIES} tries")


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((LOOPBACK, port))
    except OSError:
        made.close()
        raise
    return made
