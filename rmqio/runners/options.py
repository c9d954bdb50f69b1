"""Pipeline options with the runner resolved by name."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from rmqio.errors import LocalError
from rmqio.hints import nearest
from rmqio.runners.errors import NotReady

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


# Stray words, misspelt options and names of runners, found before Beam is imported: that takes seconds.

_CLOSE: Final = 0.8
"""Below it, an option is not taken for a misspelt one: a job server can have options that are not known here."""
_FLAG: Final = re.compile(r"""["'](--[\w-]+)["']""")
_RUNNER: Final = re.compile(r"""["']apache_beam\.runners\.[\w.]+\.(\w+Runner)["']""")
_FILES_WITH_OPTIONS: Final = ("submission.py", "usage.py", "checkpoints.py", "flink/options.py", "spark/options.py")


def wrong_argument(argv: Sequence[str], own: Iterable[str]) -> str | None:
    """Returns what is wrong with the first argument that is a stray word, or a misspelt option; None: nothing is.

    An option is misspelt if nobody knows it and it is near a known one.

    Args:
      argv: arguments of a program. Those that it does not know go to Beam and its runner.
      own: the options of the program.
    """
    if words := stray(argv):
        return f"unknown argument {words[0]!r}"
    given = [each.partition("=")[0] for each in argv[: argv.index("--") if "--" in argv else None]]
    if "--allow_unknown_options" in given:
        return None
    known = known_flags().union(own)
    for flag in (each for each in given if each.startswith("--") and each not in known):
        if near := nearest(flag.replace("-", "_").replace("__", "--", 1), known, cutoff=_CLOSE):
            return f"unknown argument {flag!r}; did you mean {near}?"
    return None


def stray(argv: Sequence[str]) -> list[str]:
    """Returns the words that are no options. A word behind an option can be its value."""
    pairs = zip(("", *argv), argv, strict=False)
    return [word for before, word in pairs if _is_word(word) and (_is_word(before) or before == "--" or "=" in before)]


def _is_word(argument: str) -> bool:
    return not argument.startswith("-") or argument == "-"


@functools.cache
def known_flags() -> frozenset[str]:
    """Returns the options of Beam and of our runners, as the text of their sources has them."""

    texts = [(Path(__file__).parent / name).read_text(encoding="utf-8") for name in _FILES_WITH_OPTIONS]
    return frozenset(f"--{name}" for name in JOB_SERVER_OPTIONS).union(*map(_FLAG.findall, [*texts, _text_of_beam()]))


@functools.cache
def flags_with_value() -> frozenset[str]:
    """Returns those options of Beam and of our runners that take a value."""
    texts = [(Path(__file__).parent / name).read_text(encoding="utf-8") for name in _FILES_WITH_OPTIONS]
    calls = [each for text in (*texts, _text_of_beam()) for each in ast.walk(ast.parse(text)) if _is_call(each)]
    return frozenset(name for each in calls if not _is_switch(each) for name in _names_of(each))


def _is_call(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call)


def _names_of(call: ast.Call) -> list[str]:
    texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [each for each in texts if each.startswith("--")]


def _is_switch(call: ast.Call) -> bool:
    actions = [ast.unparse(each.value) for each in call.keywords if each.arg == "action"]
    return any(each.startswith("'store") or each.endswith("BooleanOptionalAction") for each in actions)


@functools.cache
def beams_runners() -> frozenset[str]:
    """Returns the names of the runners that Beam knows."""
    return frozenset(_RUNNER.findall(_text_of_beam()))


def _text_of_beam() -> str:
    """Returns the module with Beam's options; an empty text without Beam."""
    beam = importlib.util.find_spec("apache_beam")
    folders = (beam.submodule_search_locations if beam is not None else None) or ()
    files = [Path(folder, "options/pipeline_options.py") for folder in folders]
    return "".join(path.read_text(encoding="utf-8") for path in files if path.is_file())


# Options that the Flink job server of Beam 2.62 reports; Beam's Python side knows only some of them.

_ANSWER: Final = """
allow_non_restored_state app_name attached_mode auto_balance_write_files_sharding_enabled
auto_watermark_interval bundle_processor_cache_timeout checkpoint_timeout_millis checkpointing_interval
checkpointing_mode credential_factory_class dataflow_kms_key default_environment_config
default_environment_type default_sdk_harness_log_level disable_metrics enable_bucket_read_metric_counter
enable_bucket_write_metric_counter enable_heap_dumps enable_stable_input_drain enable_streaming_engine
environment_cache_millis environment_expiration_millis environment_options execution_mode_for_batch
execution_retry_delay executor_service experiments externalized_checkpoints_enabled
fail_on_checkpointing_errors faster_copy file_input_split_max_size_m_b files_to_stage
finish_bundle_before_checkpointing flink_conf_dir flink_master force_unaligned_checkpoint_enabled
g_c_thrashing_percentage_per_period gcp_credential gcp_oauth_scopes gcp_temp_location gcs_endpoint
gcs_http_request_read_timeout gcs_http_request_write_timeout gcs_performance_metrics gcs_read_counter_prefix
gcs_rewrite_data_op_batch_limit gcs_upload_buffer_size_bytes gcs_util gcs_write_counter_prefix google_api_trace
google_cloud_storage_read_options grouping_table_max_size_mb impersonate_service_account jdk_add_open_modules
job_check_interval_in_secs job_endpoint job_name job_server_timeout latency_tracking_interval
load_balance_bundles log_mdc max_bundle_size max_bundle_time_mills max_cache_memory_usage_mb
max_cache_memory_usage_mb_class max_cache_memory_usage_percent max_parallelism min_pause_between_checkpoints
num_concurrent_checkpoints number_of_execution_retries object_reuse operator_chaining options_id
output_executable_path parallelism path_validator path_validator_class project re_iterable_group_by_key_result
report_checkpoint_duration resource_hints retain_docker_containers
retain_externalized_checkpoints_on_cancellation runner savepoint_path sdk_harness_log_level_overrides
sdk_worker_parallelism semi_persist_dir shutdown_sources_after_idle_ms stable_unique_names state_backend
state_backend_factory state_backend_storage_path streaming temp_location transform_service_address
transform_service_beam_version transforms_to_override unaligned_checkpoint_enabled update_compatibility_version
use_data_stream_for_batch user_agent worker_region worker_zone zone
"""
JOB_SERVER_OPTIONS: Final = frozenset(_ANSWER.split())
"""The answer to `DescribePipelineOptions`; a test asks again."""


# Beam 2.77's own DirectRunner tries Prism first, which downloads a binary, and falls back to other runners depending
# on what the pipeline holds. Ours is always the in-process FnApiRunner, and needs no network.
IN_PROCESS_RUNNER: Final = "rmqio.runners.direct.DirectRunner"
FLINK_RUNNER: Final = "rmqio.runners.flink.FlinkRunner"
PORTABLE_SPARK_RUNNER: Final = "apache_beam.runners.portability.spark_runner.SparkRunner"
SPARK_RUNNER: Final = "rmqio.runners.spark.SparkRunner"

_OURS: Final = {
    "DirectRunner": IN_PROCESS_RUNNER,
    "FlinkRunner": FLINK_RUNNER,
    "SparkRunner": SPARK_RUNNER,
    "PortableSparkRunner": PORTABLE_SPARK_RUNNER,
}
_HELP: Final = ("-h", "--help")
# Parts of the names of runners that use a job server.
_PORTABLE: Final = ("FlinkRunner", "PortableRunner", "KafkaStreamsRunner", "runners.portability.spark_runner")


def options(argv: Sequence[str] | None = None, **kwargs: Any) -> PipelineOptions:
    """Returns Beam's `PipelineOptions` with `--runner` resolved; other names are left to Beam.

    `DirectRunner` (also the default) is Beam's in-process FnApiRunner; `FlinkRunner` is Beam's with a job server of
    ours; `SparkRunner` is ours, executed by PySpark. They check a pipeline before they run it, and `--report` shows
    what they find. Beam's own Spark runner, with a Java job server, is `PortableSparkRunner`. Names ignore case and can
    omit "Runner", as in Beam. Other runners of Beam and names with dots pass through.

    Args:
      argv: command-line arguments; None: those of this process.
      kwargs: options by name, which override `argv`, e.g. `streaming=True`. `runner="FlinkRunner"` is for an `argv`
        that names no runner.

    Raises:
      LocalError: the runner is unknown, or not available here; the value of an option is missing or wrong; or an
        option is unknown and similar to a known one (`--allow_unknown_options` leaves that to Beam, which logs a
        warning and goes on).
      SystemExit: `--help`, which lists the runner's options.
    """
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    from rmqio.runners import usage  # its options are known with every runner
    from rmqio.runners.beam.speedups import ViewedOptions, speed_up_beam
    from rmqio.runners.tracebacks import show_users_frames

    show_users_frames()
    speed_up_beam()
    arguments = sys.argv[1:] if argv is None else list(argv)
    wants_help = any(each in _HELP for each in arguments)
    flags = [each for each in arguments if each not in _HELP]
    usage.parse(flags)  # before the runner is known, whose options are known with it
    if "runner" in kwargs and PipelineOptions(flags).view_as(StandardOptions).runner is not None:
        del kwargs["runner"]  # who calls the program has the last word
    found: PipelineOptions = ViewedOptions(flags, **kwargs)
    standard = found.view_as(StandardOptions)
    if standard.runner is None or isinstance(standard.runner, str):
        standard.runner = runner_path(standard.runner or "DirectRunner")
    if wants_help:
        usage.show_help(str(standard.runner))
        raise SystemExit(0)
    if not found.view_as(usage.LeniencyOptions).allow_unknown_options:
        unknown = [each for each in unknown_flags(found) if each.startswith("--")]
        if unknown and (wrong := usage.misspelt(unknown, usage.parse(flags)[1])):
            raise LocalError(wrong)
    return found


def strict_options(argv: Sequence[str], *, runner: str | None = None) -> PipelineOptions:
    """Returns `options` of a program that has taken its own ones. Also raises `LocalError` for an unknown argument."""
    found = options(argv, runner=runner or "DirectRunner")
    if unknown := unknown_flags(found):
        raise LocalError(f"unknown argument {unknown[0]!r}")
    return found


def runner_path(name: str) -> str:
    """Returns the fully qualified name, or Beam's name, of the runner that a user names. Raises `LocalError`."""
    path = _path_of(name)
    if path == SPARK_RUNNER:
        _require_spark_runner()
    return path


def known_runner(name: str) -> str:
    """Returns the name of a runner as it is given. A type of argparse, which needs no import of Beam."""
    try:
        _path_of(name)
    except LocalError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def connects_from_here(runner: object) -> bool:
    """Returns whether this process connects to RocketMQ: of Flink, workers alone do, perhaps on other machines.

    `runner`: the name as a user gives it or its path; also None, or a runner.
    """
    return not isinstance(runner, str) or _path_of(runner) != FLINK_RUNNER


def _path_of(name: str) -> str:
    if "." in name:
        return name

    names = {known.lower(): known for known in (*beams_runners(), *_OURS)}
    known = names.get(name.lower()) or names.get(f"{name.lower()}runner")
    if known is None:
        near = nearest(name.lower(), names, cutoff=0.0)
        assert near is not None  # without a cutoff, one is
        raise LocalError(
            f"runner {name!r} is unknown; the nearest known one is {names[near]!r}. "
            f"Known runners are {', '.join(_OURS)}, Beam's other runners and fully qualified class names"
        )
    return _OURS.get(known, known)


def unknown_flags(found: PipelineOptions) -> list[str]:
    """Returns the arguments that no option class knows, so that a program can refuse them: Beam only logs them.

    They are words that are no value of an option, and options without their values, such as `--stpo`. Not those options
    for runners with a job server that we do not know: it can know options that Beam's Python side does not.

    Raises:
      LocalError: the value of an option is missing or wrong.
    """
    from apache_beam.options.pipeline_options import FlinkRunnerOptions, PortableOptions, StandardOptions

    from rmqio.runners.beam.portable import given_flags

    if not given_flags(found):
        return []
    from rmqio.runners import usage

    runner = str(found.view_as(StandardOptions).runner)
    known: Set[str] = frozenset()
    is_ours = runner == FLINK_RUNNER and not (
        found.view_as(PortableOptions).job_endpoint or found.view_as(FlinkRunnerOptions).flink_job_server_jar
    )
    if is_ours:
        import rmqio.runners.flink.options  # noqa: F401 - its flags are known then

        known = JOB_SERVER_OPTIONS
    unparsed, _ = usage.parse(given_flags(found))
    words = stray(unparsed)
    if not is_ours and any(name in runner for name in _PORTABLE):
        return words
    flags = {each.partition("=")[0] for each in unparsed if each.startswith("-") and each not in words}
    return [*words, *sorted(each for each in flags if each.removeprefix("--") not in known)]


def _require_spark_runner() -> None:
    try:
        module, _, name = SPARK_RUNNER.rpartition(".")
        getattr(importlib.import_module(module), name)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("pyspark", "py4j", "pandas", "pyarrow"):
            raise
        raise NotReady(f"SparkRunner needs {package}: pip install 'rmqio[spark]'") from None
