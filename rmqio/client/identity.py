"""The name that identifies a client to its brokers."""

from __future__ import annotations

import os
import socket

from rmqio.options import ClientOptions


def client_id(options: ClientOptions, owner: object) -> str:
    """Return the id of one object in this process. Each process has its own ids, also after a fork."""
    unit = f"@{options.unit_name}" if options.unit_name else ""  # as Java's clients put it
    return f"{options.client_id_prefix}{socket.gethostname()}@{os.getpid()}#{id(owner)}{unit}"
