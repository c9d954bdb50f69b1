"""The Spark runner's reading of its options, before any Spark is started."""

from __future__ import annotations

import logging
import sys
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability import spark_runner

from rmqio import runners
from rmqio.errors import LocalError
from rmqio.runners.spark import SparkRunner, bootstrap
from rmqio.runners.spark.options import is_given, refuse_unsupported
from rmqio.runners.spark.sessions import session


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Spark of the machine's, none that an earlier test has started."""
    for name in (
        "SPARK_REMOTE",
        "SPARK_CONNECT_MODE_ENABLED",
        "SPARK_API_MODE",
        "SPARK_HOME",
        "SPARK_CONF_DIR",
        "MASTER",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["SparkRunner", "spark", "rmqio.runners.spark.SparkRunner"])
def test_spark_runner_is_ours(name: str) -> None:
    assert type(beam.Pipeline(options=runners.options([f"--runner={name}"])).runner) is SparkRunner


def test_a_plain_pipeline_finds_it_by_its_full_name() -> None:
    assert type(beam.Pipeline(argv=["--runner=rmqio.runners.spark.SparkRunner"]).runner) is SparkRunner


@pytest.mark.parametrize("name", ["PortableSparkRunner", "portablespark"])
def test_beams_own_stays_reachable(name: str) -> None:
    found = runners.options([f"--runner={name}"])
    assert type(beam.Pipeline(options=found).runner) is spark_runner.SparkRunner
    found = runners.options([f"--runner={name}", "--option_of_the_job_server=1"])
    assert runners.unknown_flags(found) == [], "its job server knows options of which Python has not heard"


@pytest.mark.parametrize(
    ("argv", "kwargs", "master"),
    [
        ([], {}, "local[*,4]"),
        (["--spark_master_url=local[4]"], {}, "local[4]"),  # Beam's default for it, but asked for
        (["--spark_master_url", "local[4]"], {}, "local[4]"),
        (["--spark_master_url=spark://there:7077"], {}, "spark://there:7077"),
        ([], {"spark_master_url": "spark://there:7077"}, "spark://there:7077"),
        (["--spark_conf", "spark.master=yarn"], {}, "yarn"),
        (["--spark_conf", "spark.master=yarn", "--spark_master_url=local[4]"], {}, "local[4]"),
    ],
)
def test_the_master(argv: list[str], kwargs: dict[str, Any], master: str) -> None:
    options = PipelineOptions(argv, **kwargs)
    assert session._master(options, session.spark_settings(options), {}) == master


def test_a_master_that_spark_is_configured_with_goes_before_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\nspark.master            spark://configured:7077\nspark.driver.extraJavaOptions=-Da=b -Dc=d\n\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    configured = session.configured()
    assert configured == {
        "spark.master": "spark://configured:7077",
        "spark.driver.extraJavaOptions": "-Da=b -Dc=d",
    }
    assert session._master(PipelineOptions([]), {}, configured) == "spark://configured:7077"
    given = PipelineOptions(["--spark_master_url=local[2]"])
    assert session._master(given, {}, configured) == "local[2]"
    assert session._master(PipelineOptions([]), {}, {"spark.master": "local[*]"}) == "local[*,4]", "Spark's own default"


def test_settings_of_spark() -> None:
    options = PipelineOptions(["--spark_conf", "spark.a=1", "--spark_conf=spark.b=x=y", "--spark_conf", "spark.c="])
    assert session.spark_settings(options) == {"spark.a": "1", "spark.b": "x=y", "spark.c": ""}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("spark.executor.memory", "give it as name=value"),
        ("=2g", "give it as name=value"),
        ("executor.memory=2g", "begin with 'spark.'"),
    ],
)
def test_a_setting_in_a_bad_form(setting: str, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        session.session_for(PipelineOptions(["--spark_conf", setting]))


@pytest.mark.parametrize(
    ("variable", "value", "argv"),
    [
        ("SPARK_REMOTE", "sc://there:15002", []),
        ("SPARK_CONNECT_MODE_ENABLED", "1", []),
        ("SPARK_API_MODE", "connect", []),
        ("UNRELATED", "1", ["--spark_conf", "spark.remote=sc://there"]),
        ("UNRELATED", "1", ["--spark_conf", "spark.api.mode=Connect"]),
    ],
)
def test_spark_connect_is_refused(variable: str, value: str, argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(LocalError, match=r"does not work over Spark Connect yet.*broadcasts and accumulators"):
        session.session_for(PipelineOptions(argv))


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--spark_job_server_jar=x.jar", "PortableSparkRunner"),
        ("--spark_submit_uber_jar", "PortableSparkRunner"),
        ("--spark_version=3", "uses the installed pyspark"),  # with its default value
        ("--job_endpoint=localhost:8099", "no job server"),
        ("--environment_type=LOOPBACK", "no container"),
        ("--sdk_container_image=x", "no container"),
        ("--sdk_worker_parallelism=2", "spark.executor.cores"),
        ("--sdk_location=container", "packed environment"),
        ("--files_to_stage=x", "spark.files"),
        ("--requirements_cache=skip", "pip"),
        ("--profile_cpu", "spark.python.profile"),
        ("--pickle_library=dill_unsafe", "cloudpickle only"),
    ],
)
def test_a_flag_that_it_cannot_follow_is_refused_with_a_reason(flag: str, reason: str) -> None:
    name = flag.partition("=")[0]
    with pytest.raises(LocalError, match=f"{name}.*: .*{reason}"):
        refuse_unsupported(PipelineOptions([flag]))


def test_other_flags_are_not_refused() -> None:
    refuse_unsupported(
        PipelineOptions(["--pickle_library=cloudpickle", "--save_main_session", "--direct_num_workers=2"])
    )


def test_what_counts_as_given() -> None:
    assert is_given(PipelineOptions(["--spark_version=3"]), "spark_version")
    assert is_given(PipelineOptions([], spark_app_name="x"), "spark_app_name")
    assert not is_given(PipelineOptions([]), "spark_version")
    assert not is_given(PipelineOptions(["--spark_version_of_mine=3"]), "spark_version")


def test_a_refused_flag_stops_the_pipeline_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_start", lambda *_: pytest.fail("Spark was started"))
    pipeline = beam.Pipeline(runner=SparkRunner(), argv=["--environment_type=DOCKER"])
    _ = pipeline | beam.Create([1])
    with pytest.raises(LocalError, match="--environment_type"):
        pipeline.run()


# Messages of Spark 4.3 about workers that do not start, and about workers of another Python; shortened
NO_RMQIO = """An error occurred while calling o147.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: org.apache.spark.SparkException:
Error from python worker:
  /bin/python: Error while finding module specification for 'rmqio.runners.spark.sessions.daemon' (no module 'rmqio')
PYTHONPATH was:
  /spark/python/lib/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number"""
PLAIN_DAEMON = """Traceback (most recent call last):
  File "pyspark/worker.py", line 1, in main
ModuleNotFoundError: No module named 'rmqio'
\tat org.apache.spark.api.python"""
MISMATCH = """pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has 3.9.
\tat org.apache.spark.api.python"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NO_RMQIO, "/bin/python: Error while finding module specification for 'rmqio"),
        (PLAIN_DAEMON, "ModuleNotFoundError: No module named 'rmqio'"),
        (MISMATCH, "Python in worker has 3.9"),
    ],
)
def test_workers_with_another_python_are_reported_in_one_line(text: str, said: str) -> None:
    message = str(session.unfit_workers(text))
    assert said in message
    assert "spark.pyspark.python" in message
    assert "org.apache" not in message
    assert "\n" not in message


def test_other_failures_are_left_as_they_are() -> None:
    assert session.unfit_workers("java.lang.OutOfMemoryError\nModuleNotFoundError: No module named 'users'") is None


# ---- what workers begin with -----------------------------------------------------------------------------------------


def test_log_levels_for_workers() -> None:
    flags = ["--default_sdk_harness_log_level=DEBUG", '--sdk_harness_log_level_overrides={"a.b": "INFO", "c": "35"}']
    found = bootstrap.bootstrap_for(PipelineOptions(flags), None)
    assert found.log_level == logging.DEBUG
    assert found.log_levels == {"a.b": logging.INFO, "c": 35}
    with pytest.raises(LocalError, match="'LOUD' is not a log level"):
        bootstrap.bootstrap_for(PipelineOptions(["--default_sdk_harness_log_level=LOUD"]), None)


def main_module(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(source, vars(main))


UNPICKLABLE = "class Good: pass\nclass Bad:\n    generator = (n for n in ())\n"


def test_classes_of_the_main_module_that_do_not_pickle_stay_behind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    main_module(monkeypatch, UNPICKLABLE)
    found = bootstrap.bootstrap_for(PipelineOptions([]), None)
    assert found.classes is not None
    assert set(pickler.loads(found.classes)) == {"Good"}


def test_save_main_session_says_what_does_not_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    main_module(monkeypatch, UNPICKLABLE)
    with pytest.raises(LocalError, match=r"--save_main_session: .*generator"):
        bootstrap.bootstrap_for(PipelineOptions(["--save_main_session"]), None)


def test_no_save_main_session_leaves_it_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    main_module(monkeypatch, "class Good: pass")
    found = bootstrap.bootstrap_for(PipelineOptions(["--no_save_main_session"]), None)
    assert found.classes is None
    assert found.registries is None


def test_a_pipeline_that_says_nothing_takes_the_main_module_along(monkeypatch: pytest.MonkeyPatch) -> None:
    main_module(monkeypatch, "class Good: pass")
    options = beam.Pipeline(argv=["--runner=rmqio.runners.spark.SparkRunner"])._options  # as Beam completes them
    assert options.view_as(StandardOptions).runner
    assert bootstrap.bootstrap_for(options, None).classes is not None
