"""Free ports on the loopback interface."""

from __future__ import annotations

import random
import socket
from typing import Final

from rmqio.local.errors import LocalBrokerError

LOOPBACK: Final = "127.0.0.1"

# Below the range from which Linux (32768) and macOS (49152) choose local ports of outgoing connections. In that
# range, a client that keeps connecting to a killed broker's port would sometime connect to itself and hold the port.
_RANGE: Final = range(10_000, 32_000)
_TRIES: Final = 200


def is_free(port: int) -> bool:
    """Return whether a server could bind to `port` of the loopback interface now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java's servers do: connections in TIME_WAIT from a recently stopped broker are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(*, below: tuple[int, ...] = ()) -> int:
    """Return a free port p such that p minus each number of `below` is also free (brokers also listen on port - 2)."""
    for _ in range(_TRIES):
        port = random.choice(_RANGE)
        if all(is_free(port - distance) for distance in (0, *below)):
            return port
    raise LocalBrokerError(
        f"no free port found on {LOOPBACK} between {_RANGE.start} and {_RANGE.stop} in {_TRIES} tries: "
        "stop other servers, or specify the ports"
    )


def require_free(port: int, purpose: str) -> None:
    """Raise LocalBrokerError if `port` is taken or invalid; `purpose` is named in the message."""
    if not 1 <= port <= 65_535:
        raise LocalBrokerError(f"the {purpose} cannot use port {port}: it must be between 1 and 65535")
    if not is_free(port):
        raise LocalBrokerError(
            f"port {port} of {LOOPBACK}, wanted for the {purpose}, is in use by another process: "
            "stop it, choose another port, or specify none to get a free one"
        )
