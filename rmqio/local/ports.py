"""Free ports on the loopback interface."""

from __future__ import annotations

import random
import socket
from typing import Final

from rmqio.local.errors import LocalBrokerError

LOOPBACK: Final = "127.0.0.1"

# Below the range from which Linux (32768) and macOS (49152) take the local ports of outgoing connections. In that range
# a client that keeps connecting to the port of a killed broker would one day connect to itself and hold the port.
_RANGE: Final = range(10_000, 32_000)
_TRIES: Final = 200


def is_free(port: int) -> bool:
    """Whether a server could bind to `port` of the loopback interface now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java's servers do: connections in TIME_WAIT of a broker that has just stopped are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(*, below: tuple[int, ...] = ()) -> int:
    """A free port p such that p minus each number of `below` is free too (the broker also listens on port - 2)."""
    for _ in range(_TRIES):
        port = random.choice(_RANGE)
        if all(is_free(port - distance) for distance in (0, *below)):
            return port
    raise LocalBrokerError(
        f"no free port found on {LOOPBACK} between {_RANGE.start} and {_RANGE.stop} in {_TRIES} tries: "
        "stop other servers, or give the ports yourself"
    )


def require_free(port: int, purpose: str) -> None:
    """Raise LocalBrokerError if `port` is taken or not a port; `purpose` is named in the message."""
    if not 1 <= port <= 65_535:
        raise LocalBrokerError(f"the {purpose} cannot have port {port}: a port is between 1 and 65535")
    if not is_free(port):
        raise LocalBrokerError(
            f"port {port} of {LOOPBACK}, wanted for the {purpose}, is in use by another process: "
            "stop it, choose another port, or give none so that a free one is taken"
        )
