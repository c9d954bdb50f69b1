"""The options of the Spark runner, in addition to Beam's own `--spark_master_url`."""

from __future__ import annotations

import argparse
from collections.abc import Set
from typing import Final

from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions

from rmqio.errors import LocalError
from rmqio.runners.beam.portable import given_flags

_NO_JOB_SERVER: Final = "SparkRunner has no job server. Beam's own runner has one: use --runner=PortableSparkRunner"
_NO_CONTAINERS: Final = "SparkRunner runs user code in Spark's own Python workers; there is no container or SDK harness"
# Flags that say how workers run, which this runner cannot follow. If it ignored them, it would run something else.
_REFUSED: Final = {
    "spark_job_server_jar": _NO_JOB_SERVER,
    "spark_submit_uber_jar": _NO_JOB_SERVER,
    "spark_rest_url": _NO_JOB_SERVER,
    "spark_version": _NO_JOB_SERVER + ". SparkRunner uses the installed pyspark",
    "job_endpoint": _NO_JOB_SERVER,
    "artifact_endpoint": _NO_JOB_SERVER,
    "environment_type": _NO_CONTAINERS,
    "environment_config": _NO_CONTAINERS,
    "environment_options": _NO_CONTAINERS,
    "sdk_container_image": _NO_CONTAINERS,
    "prebuild_sdk_container_engine": _NO_CONTAINERS,
    "sdk_worker_parallelism": _NO_CONTAINERS + ". Set how many run at a time with --spark_conf spark.executor.cores=N",
    "sdk_location": "workers use the Beam that is installed in their Python. Ship another one in a packed environment",
    "files_to_stage": "use --spark_conf spark.files=PATH,PATH and read the files with pyspark.SparkFiles.get(NAME)",
    "requirements_cache": "pip installs the requirements and has its own cache. Set PIP_CACHE_DIR instead",
    "requirements_cache_only_sources": "pip installs the requirements and uses wheels where they exist. Omit the flag",
    "profile_cpu": "use --spark_conf spark.python.profile and Spark's own profilers",
    "profile_memory": "use --spark_conf spark.python.profile.memory and Spark's own profilers",
}


class SparkOptions(PipelineOptions):
    """`--spark_conf`, `--spark_app_name`, and the runner's limits."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--spark_conf",
            action="append",
            metavar="NAME=VALUE",
            help="A Spark setting, e.g. spark.executor.memory=2g. Can be repeated.",
        )
        parser.add_argument(
            "--spark_app_name", help="The name of the application in Spark's UI. Default: the program's name."
        )
        parser.add_argument(
            "--spark_side_input_limit_mb",
            type=int,
            default=512,
            help="The maximum encoded size of a side input in MiB. It goes through the driver to every worker. "
            "Default: 512.",
        )


class StreamOptions(PipelineOptions):
    """The options of `--streaming`."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--trigger_interval_ms",
            type=int,
            default=0,
            help="The minimum time between the starts of two micro-batches. Default: 0, one directly after the other.",
        )
        parser.add_argument(
            "--available_now",
            action="store_true",
            default=False,
            help="Read what is available when the pipeline starts, in as many micro-batches as the limits require, "
            "then end.",
        )
        parser.add_argument(
            "--drain",
            action="store_true",
            default=False,
            help="Before the pipeline stops, advance the watermark to the end of time, so that all windows fire.",
        )
        parser.add_argument(
            "--progress", action="store_true", default=False, help="Write a line to stderr for each micro-batch."
        )
        # A bucket holds its rows of a micro-batch in memory, so a backlog must not arrive all at once.
        parser.add_argument(
            "--max_records_per_trigger",
            type=int,
            default=500_000,
            help="The maximum number of records of a source in a micro-batch; 0: no limit. Default: %(default)s.",
        )
        parser.add_argument(
            "--max_bytes_per_trigger",
            type=int,
            default=256 * 2**20,
            help="The maximum bytes of a source in a micro-batch, by sampled sizes; 0: no limit. Default: %(default)s.",
        )
        parser.add_argument(
            "--spark_buckets",
            type=int,
            help="The number of parts into which state is divided. It is fixed for the life of the checkpoint: a "
            "restart with another number is refused. Default: Spark's shuffle partitions.",
        )


_OF_STREAMS: Final = (
    "checkpoint_dir", "trigger_interval_ms", "available_now", "drain", "progress", "max_records_per_trigger",
    "max_bytes_per_trigger", "spark_buckets",
)  # fmt: skip


def without_effect(options: PipelineOptions) -> list[str]:
    """Returns what to say of given options that do nothing, since the pipeline does not run as a stream."""
    given = given_names(options)
    return [f"--{name} has no effect without --streaming" for name in _OF_STREAMS if name in given]


def given_names(options: PipelineOptions) -> Set[str]:
    """Returns the names of the options that the user gave, even if given with their default values."""
    names = {flag.partition("=")[0].removeprefix("--") for flag in given_flags(options) if flag.startswith("--")}
    return names | set(options.get_all_options(drop_default=True))


def is_given(options: PipelineOptions, name: str) -> bool:
    """Returns whether the user gave an option. Beam parses all options each time, which takes milliseconds."""
    return name in given_names(options)


def refuse_unsupported(options: PipelineOptions) -> None:
    """Raises `LocalError` for a flag of Beam that the runner would have to ignore, with the reason."""
    given = given_names(options)
    for name, reason in _REFUSED.items():
        if name in given:
            raise LocalError(f"--{name}: {reason}")
    library = options.view_as(SetupOptions).pickle_library
    if library not in ("default", "cloudpickle"):
        raise LocalError(
            f"--pickle_library={library}: SparkRunner's workers unpickle with cloudpickle only. Omit the flag, or "
            "set it to cloudpickle"
        )
