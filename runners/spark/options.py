"""Options of the Spark runner, beside Beam's own `--spark_master_url`."""

from __future__ import annotations

import argparse
from collections.abc import Set
from typing import Final

from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions

from rmqio.errors import LocalError
from rmqio.runners._beam import given_flags

_NO_JOB_SERVER: Final = "SparkRunner has no job server; Beam's own, --runner=PortableSparkRunner, has one"
_NO_CONTAINERS: Final = "SparkRunner runs user code in Spark's own Python workers, there is no container or SDK harness"
# Flags that say how workers are to run and that this runner cannot follow. To ignore them would run something else.
_REFUSED: Final = {
    "spark_job_server_jar": _NO_JOB_SERVER,
    "spark_submit_uber_jar": _NO_JOB_SERVER,
    "spark_rest_url": _NO_JOB_SERVER,
    "spark_version": _NO_JOB_SERVER + ". Here the installed pyspark decides",
    "job_endpoint": _NO_JOB_SERVER,
    "artifact_endpoint": _NO_JOB_SERVER,
    "environment_type": _NO_CONTAINERS,
    "environment_config": _NO_CONTAINERS,
    "environment_options": _NO_CONTAINERS,
    "sdk_container_image": _NO_CONTAINERS,
    "prebuild_sdk_container_engine": _NO_CONTAINERS,
    "sdk_worker_parallelism": _NO_CONTAINERS + "; --spark_conf spark.executor.cores=N says how many run at a time",
    "sdk_location": "workers use the Beam that their Python has; ship another one in a packed environment",
    "files_to_stage": "give --spark_conf spark.files=PATH,PATH and read them by pyspark.SparkFiles.get(NAME)",
    "requirements_cache": "pip is asked for requirements and keeps its own cache (PIP_CACHE_DIR)",
    "requirements_cache_only_sources": "pip is asked for requirements and takes wheels where there are some",
    "profile_cpu": "use --spark_conf spark.python.profile and Spark's own profilers",
    "profile_memory": "use --spark_conf spark.python.profile.memory and Spark's own profilers",
}


class SparkOptions(PipelineOptions):
    """`--spark_conf`, `--spark_app_name` and limits of the runner."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--spark_conf",
            action="append",
            metavar="NAME=VALUE",
            help="A setting of Spark, e.g. spark.executor.memory=2g. Repeatable.",
        )
        parser.add_argument("--spark_app_name", help="Name of the application in Spark's UI. Default: the program's.")
        parser.add_argument(
            "--spark_side_input_limit_mb",
            type=int,
            default=512,
            help="Largest side input, encoded, in MiB: it goes through the driver to every worker. Default: 512.",
        )


class StreamOptions(PipelineOptions):
    """Of `--streaming`."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--trigger_interval_ms",
            type=int,
            default=0,
            help="Least time between the beginnings of two micro-batches. Default: 0, one after the other.",
        )
        parser.add_argument(
            "--available_now",
            action="store_true",
            default=False,
            help="Read what is there when the pipeline starts, in as many micro-batches as limits ask for, then end.",
        )
        parser.add_argument(
            "--drain",
            action="store_true",
            default=False,
            help="Before it stops, let the watermark go to the end of time, so that all windows fire.",
        )
        parser.add_argument(
            "--progress", action="store_true", default=False, help="A line on stderr for each micro-batch."
        )
        # A bucket's rows of a micro-batch are in memory, so that a backlog must not come all at once.
        parser.add_argument(
            "--max_records_per_trigger",
            type=int,
            default=500_000,
            help="Most records of a source in a micro-batch; 0: no limit. Default: %(default)s.",
        )
        parser.add_argument(
            "--max_bytes_per_trigger",
            type=int,
            default=256 * 2**20,
            help="Most bytes of a source in a micro-batch, by sampled sizes; 0: no limit. Default: %(default)s.",
        )
        parser.add_argument(
            "--spark_buckets",
            type=int,
            help="Parts into which state is divided, as long as the checkpoint lives: then another number is refused. "
            "Default: Spark's shuffle partitions.",
        )


def given_names(options: PipelineOptions) -> Set[str]:
    """The names of the options that the user gave, also with their default values."""
    names = {flag.partition("=")[0].removeprefix("--") for flag in given_flags(options) if flag.startswith("--")}
    return names | set(options.get_all_options(drop_default=True))


def is_given(options: PipelineOptions, name: str) -> bool:
    """Whether the user gave an option. Beam parses all of them for it, which takes milliseconds: ask once."""
    return name in given_names(options)


def refuse_unsupported(options: PipelineOptions) -> None:
    """Raises `LocalError` for flags of Beam's that would be ignored here, each with its reason."""
    given = given_names(options)
    for name, reason in _REFUSED.items():
        if name in given:
            raise LocalError(f"--{name}: {reason}")
    library = options.view_as(SetupOptions).pickle_library
    if library not in ("default", "cloudpickle"):
        raise LocalError(f"--pickle_library={library}: SparkRunner's workers unpickle with cloudpickle only")
