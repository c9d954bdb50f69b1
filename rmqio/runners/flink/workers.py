"""Pools of Python workers that listen on the loopback interface only.

Beam's own pool listens on all interfaces, and anyone who reaches a pool can make it run programs.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import grpc

from rmqio.errors import LocalError
from rmqio.local.processes import LOOPBACK
from rmqio.runners.flink.beam import (
    HARNESS,
    BeamFnExternalWorkerPoolServicer,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    shared_unbounded_instance,
)

CACHE_BYTES: Final = 100 << 20
NO_LIMIT: Final = -1


class _Processes(BeamFnExternalWorkerPoolServicer):
    """Workers as processes with this Python. Beam's own pool would run whichever `python` is first in the PATH."""

    def StartWorker(self, request: Any, context: Any) -> Any:
        harness = [request.control_endpoint.url, request.worker_id, str(self._state_cache_size)]
        try:
            self._worker_processes[request.worker_id] = subprocess.Popen([sys.executable, "-c", HARNESS, *harness])
        except OSError as error:
            return beam_fn_api_pb2.StartWorkerResponse(error=str(error))
        return beam_fn_api_pb2.StartWorkerResponse()

    def kill_all(self) -> None:
        """Kill all workers at the end of the pool."""
        for process in self._worker_processes.values():
            process.kill()
            process.wait()


def start_pool(
    *, processes: bool, port: int = 0, cache_bytes: int = CACHE_BYTES, buffer_limit_ms: int = NO_LIMIT
) -> tuple[str, Callable[[], None]]:
    """Start a pool. Return its address, and a function that stops it.

    Args:
      processes: whether each worker is a process of its own; otherwise, it is a thread of this one.
      port: 0 for a free port.
      cache_bytes: how much state a worker keeps between bundles.
      buffer_limit_ms: how long a worker in a thread holds back its output; -1: until its buffer is full.

    Raises `LocalError` if the port is taken.
    """
    if processes:
        pool = _Processes(use_process=True, state_cache_size=cache_bytes)
    else:
        _expect_hang_up()
        pool = BeamFnExternalWorkerPoolServicer(state_cache_size=cache_bytes, data_buffer_time_limit_ms=buffer_limit_ms)
    server = grpc.server(shared_unbounded_instance())
    try:
        port = server.add_insecure_port(f"{LOOPBACK}:{port}")
    except RuntimeError as error:
        raise LocalError(f"cannot start a pool of workers at {LOOPBACK}:{port}: {error}") from error
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.start()

    def stop() -> None:
        server.stop(1)
        if processes:
            pool.kill_all()

    return f"{LOOPBACK}:{port}", stop


def _is_hang_up(error: object) -> bool:
    return isinstance(error, grpc.RpcError) and error.code() is grpc.StatusCode.CANCELLED


def _no_hang_up(record: logging.LogRecord) -> bool:
    return not (record.exc_info and _is_hang_up(record.exc_info[1]))


def _expect_hang_up() -> None:
    """Keep Python from printing a traceback at the end of a job.

    The job server then hangs up on the worker. Nobody handles the errors of the thread that reads its data and, at
    times, of the thread that runs it.
    """
    logging.getLogger("apache_beam.runners.worker.data_plane").addFilter(_no_hang_up)  # it logs that before it raises
    before = threading.excepthook
    if getattr(before, "expects_hang_up", False):
        return

    def hook(failure: Any) -> None:
        thread = failure.thread
        at_end = thread is not None and thread.name.startswith(("read_grpc_client_inputs", "run_worker"))
        if not (at_end and _is_hang_up(failure.exc_value)):
            before(failure)

    hook.expects_hang_up = True  # type: ignore[attr-defined]
    threading.excepthook = hook
