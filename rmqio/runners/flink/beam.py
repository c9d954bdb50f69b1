"""The only file of `runners/flink` that uses Beam's private modules: its FlinkRunner, the job server that Beam would
download, and its pool of workers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import apache_beam as beam
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, beam_runner_api_pb2
from apache_beam.runners.portability.flink_runner import FlinkRunner as BeamFlinkRunner
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.transforms import environments
from apache_beam.utils.thread_pool_executor import shared_unbounded_instance

__all__ = [
    "HARNESS",
    "BeamFlinkRunner",
    "BeamFnExternalWorkerPoolServicer",
    "beam_fn_api_pb2",
    "beam_fn_api_pb2_grpc",
    "beam_runner_api_pb2",
    "cache_bytes",
    "common_urns",
    "downloaded",
    "finalizes",
    "has_no_end",
    "identity",
    "loopback_environments",
    "name_in_flink",
    "published_job_server",
    "python_urns",
    "shared_unbounded_instance",
    "to_pool",
]

HARNESS: Final = (
    "import sys; from apache_beam.runners.worker.sdk_worker import SdkHarness; "
    "from rmqio.runners.beam.speedups import speed_up_beam; speed_up_beam(); "
    "SdkHarness(sys.argv[1], worker_id=sys.argv[2], state_cache_size=int(sys.argv[3])).run()"
)
"""A program: the harness, as Beam's own pool starts it, with control endpoint, worker's id and bytes of its cache."""

_TARGET: Final = ":runners:flink:1.19:job-server:shadowJar"
"""The job server, as Beam's FlinkRunner names it. Every supported Beam publishes one for this version of Flink."""


def published_job_server() -> Path:
    """Return the job server jar of the installed Beam, from Beam's cache or downloaded into it; not verified.

    Raises OSError or RuntimeError if it is not available.
    """
    from apache_beam.utils.subprocess_server import JavaJarServer

    return Path(JavaJarServer.local_jar(JavaJarServer.path_to_beam_jar(_TARGET)))


def downloaded(url: str) -> str:
    """Return the path in Beam's cache of a job server jar given as a URL. Raises OSError if it is not available."""
    from apache_beam.utils.subprocess_server import JavaJarServer

    return str(JavaJarServer.local_jar(url))


def has_no_end(pipeline: Any) -> bool:
    """Return whether a PCollection of the pipeline, in Beam's portable form, is unbounded."""
    unbounded = beam_runner_api_pb2.IsBounded.UNBOUNDED
    return any(each.is_bounded == unbounded for each in pipeline.components.pcollections.values())


def finalizes(pipeline: Any) -> bool:
    """Return whether a DoFn of the pipeline, in Beam's portable form, requests bundle finalization."""
    payloads = (
        beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload)
        for each in pipeline.components.transforms.values()
        if each.spec.urn == common_urns.primitives.PAR_DO.urn
    )
    return any(each.requests_finalization for each in payloads)


def identity() -> Any:
    """Return the spec of an identity step in Beam's portable form. It pickles by value."""
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Impulse() | "Same" >> beam.Map(lambda each: each)
    (spec,) = (
        each.spec
        for each in pipeline.to_runner_api().components.transforms.values()
        if each.spec.urn == common_urns.primitives.PAR_DO.urn
    )
    return spec


def name_in_flink(result: Any) -> str:
    """Return a job's name in Flink: Beam's FlinkJobInvoker makes ids of name, underscore and UUID."""
    return str(result._job_id).rpartition("_")[0]


def loopback_environments(pipeline: Any) -> list[Any]:
    """Return the environments whose code runs in the process that submits the pipeline."""
    found = pipeline.components.environments.values()
    return [each for each in found if each.urn == python_urns.EMBEDDED_PYTHON_LOOPBACK]


def to_pool(environment: Any, address: str) -> None:
    """Make the environment take its workers from the pool at `address`."""
    made = environments.ExternalEnvironment(address).to_runner_api(None)
    environment.urn, environment.payload = made.urn, made.payload


def cache_bytes(options: PipelineOptions) -> tuple[int, int]:
    """Return a worker's state cache size, and how long in ms it may hold back its output, as Beam sets them."""
    experiments = options.view_as(DebugOptions).experiments or []
    cache = sdk_worker_main._get_state_cache_size_bytes(options=options)
    return cache, sdk_worker_main._get_data_buffer_time_limit_ms(experiments)
