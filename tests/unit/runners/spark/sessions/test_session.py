"""What the end of a session leaves behind."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer, UpdateRequestHandler

from rmqio.runners.spark.sessions.session import _leave_accumulator_server


def test_a_session_leaves_no_socket_behind(tmp_path: Path) -> None:
    path = tmp_path / "s"
    tcp = AccumulatorTCPServer(("127.0.0.1", 0), UpdateRequestHandler, "token")
    with AccumulatorUnixServer(str(path), UpdateRequestHandler) as server, tcp:
        assert path.is_socket()
        for each in (server, tcp):
            context: Any = SimpleNamespace(_accumulatorServer=each)
            _leave_accumulator_server(context)
            assert (each.server_shutdown, context._accumulatorServer) == (True, None)
        assert not path.exists()
    _leave_accumulator_server(SimpleNamespace())  # type: ignore[arg-type]
