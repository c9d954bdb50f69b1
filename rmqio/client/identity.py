"""The name under which a client appears at its brokers."""

from __future__ import annotations

import os
import socket

from rmqio.options import ClientOptions


def client_id(options: ClientOptions, owner: object) -> str:
    """Of one object in this process: another process is another client, also after a fork."""
    return f"{options.client_id_prefix}{socket.gethostname()}@{os.getpid()}#{id(owner)}"
