"""Beam's portable runner, whose job server runs the pipeline on Spark. Runs in a worker process, the driver."""

from __future__ import annotations

from typing import Any, Final

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.worker import worker_pool_main
from apache_beam.utils import thread_pool_executor

from bench.spark.pipelines import BUILD
from bench.spark.side import leave, prepare, timed

_CACHE_MS: Final = 5_000
_flags: list[str] = []


def start(endpoint: str, processes: int) -> dict[str, Any]:
    """Called before anything else. `processes`: SDK workers in processes of their own, or 0: in this one (LOOPBACK)."""
    prepare()
    worker_pool_main.BeamFnExternalWorkerPoolServicer = _LoopbackPool
    _flags.extend(
        [
            f"--job_endpoint={endpoint}",
            "--environment_type=LOOPBACK",
            # Without it SDK workers end with a stage and are started for the next; idle ones outlive their job by it.
            f"--environment_cache_millis={_CACHE_MS}",
        ]
    )
    if processes:
        _flags.extend(["--experiments=use_loopback_process_worker", f"--sdk_worker_parallelism={processes}"])
    return {}


def run(name: str, elements: int) -> dict[str, Any]:
    """One of the pipelines, from building it to its end."""

    def pipeline(path: str) -> None:
        with beam.Pipeline(runner=PortableRunner(), options=PipelineOptions(_flags)) as p:
            _ = BUILD[name](p, elements) | "Leave" >> beam.Map(leave, path)

    return timed(pipeline)


class _LoopbackPool(worker_pool_main.BeamFnExternalWorkerPoolServicer):
    """Beam's own, which listens on all interfaces, on the loopback interface."""

    @classmethod
    def start(cls, port: int = 0, **settings: Any) -> tuple[str, grpc.Server]:
        server = grpc.server(thread_pool_executor.shared_unbounded_instance())
        address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(cls(**settings), server)
        server.start()
        return address, server
