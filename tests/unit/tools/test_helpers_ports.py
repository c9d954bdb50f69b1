"""`reserved_port` of tests/helpers/servers/ports.py."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.helpers.servers.ports import reserved_port


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not let a server listen on a bound port")
def test_a_reserved_port_and_those_below_are_for_servers_only() -> None:
    port = reserved_port(below=(2,))
    for each in (port, port - 2):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", each))
        for _ in range(2):  # also after a restart
            with socket.create_server(("127.0.0.1", each)) as server:
                assert server.getsockname()[1] == each
