"""The SparkSession that a pipeline runs in: the caller's if there is one, else one of our own."""

from __future__ import annotations

import atexit
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from apache_beam.options.pipeline_options import PipelineOptions, SparkRunnerOptions
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession

from rmqio.errors import LocalError
from rmqio.runners.spark.options import SparkOptions, is_given

# local[n] never runs a task again; with a number of tries it does
DEFAULT_MASTER: Final = "local[*,4]"
# What Spark's own launcher fills in when nobody chose a master
_NOBODYS_CHOICE: Final = (None, "local[*]")
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_DEFAULTS_LINE: Final = re.compile(r"\s*(spark\.[^\s=:]+)\s*[\s=:]\s*(.*?)\s*$")
# For the plans of a pipeline only; the caller's session keeps its own settings.
_PLAN_SETTINGS: Final = {
    # What Spark hands to Python at a time; rows hold many elements, so bytes are what counts
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
    # Stages are cut where Beam cuts them and partitions are numbered by us: nothing is left to adapt to
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
_UNFIT: Final = (
    re.compile(r"Error from python worker:\s*(.*?)\s*PYTHONPATH was:", re.DOTALL),
    re.compile(r"(\[PYTHON_VERSION_MISMATCH\][^\n]*)"),
    re.compile(r"(ModuleNotFoundError: No module named '(?:rmqio|apache_beam|pyarrow|pandas)\b[^\n]*)"),
)
_EXECUTORS_WAIT_S: Final = 30.0
_EXECUTORS_SETTLE_S: Final = 2.0  # a cluster that no executor joined for so long is taken to be complete
_JVM_EXIT_S: Final = 10.0


def session_for(options: PipelineOptions) -> SparkSession:
    """A session for one pipeline.

    An active session is used with its cluster (so `spark-submit pipeline.py` works); settings of ours go into a session
    of the same application that shares nothing but executors. A Spark that was started here serves the later pipelines
    of the process, too, and ends with it.

    Raises:
      LocalError: Spark Connect, a setting that is none, or one that a running Spark does not take any more.
    """
    given = spark_settings(options)
    _refuse_connect(given)
    running = _running()
    base = running or _start(options, given)
    if not hasattr(base, "_jsparkSession"):
        raise LocalError(_NO_CONNECT)
    if running is not None:
        _check_running(running, options, given)
    session = base.newSession()
    for name, value in {**_PLAN_SETTINGS, **given}.items():
        if session.conf.isModifiable(name):
            try:
                session.conf.set(name, value)
            except Exception as error:
                raise LocalError(f"--spark_conf {name}={value}: Spark refuses it: {error}") from error
    session.conf.set(_SHUFFLE_PARTITIONS, _partitions(base, given, started=running is None))
    return session


def partitions(session: SparkSession) -> int:
    """Into how many partitions a shuffle of the pipeline's session goes."""
    return int(session.conf.get(_SHUFFLE_PARTITIONS) or 0)


def spark_settings(options: PipelineOptions) -> dict[str, str]:
    """What `--spark_conf` gives, by name. Raises `LocalError` for what is not name=value."""
    given: Sequence[str] = options.view_as(SparkOptions).spark_conf or ()
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise LocalError(
                f"--spark_conf {each!r}: give it as name=value, e.g. --spark_conf spark.executor.memory=2g"
            )
        if not name.startswith("spark."):
            raise LocalError(f"--spark_conf {each!r}: Spark's settings begin with 'spark.', others it drops unseen")
        found[name] = value
    return found


def unfit_workers(text: str) -> LocalError | None:
    """What Spark says about a failed job, in short, if the Python of its workers is not one that can run pipelines."""
    found = next((match for each in _UNFIT if (match := each.search(text))), None)
    return found and LocalError(
        f"the Python of Spark's workers does not do: {found[1].strip()}. It must be of the driver's minor version and "
        "have rmqio[spark] and apache-beam. --spark_conf spark.pyspark.python=PATH names another, see "
        "docs/spark-cluster.md"
    )


_PYTHONPATH: Final = "spark.executorEnv.PYTHONPATH"
_NO_CONNECT: Final = (
    "SparkRunner does not work over Spark Connect yet: it needs broadcasts and accumulators, which Connect has not. "
    "Unset SPARK_REMOTE and spark.api.mode, and run the driver beside the cluster: by spark-submit, or with "
    "--spark_master_url=spark://..."
)


def _refuse_connect(given: Mapping[str, str]) -> None:
    names = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
    modes = (os.environ.get("SPARK_API_MODE", ""), given.get("spark.api.mode", ""))
    if any(map(os.environ.get, names)) or "spark.remote" in given or "connect" in map(str.lower, modes):
        raise LocalError(_NO_CONNECT)


def _running() -> SparkSession | None:
    """The active session; in a thread that has none, the one of the running Spark."""
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _check_running(session: SparkSession, options: PipelineOptions, given: Mapping[str, str]) -> None:
    """Raises for what is wanted of a Spark that runs already and was started otherwise."""
    context = session.sparkContext
    started_with = dict(context.getConf().getAll()) if given else {}
    for name, value in given.items():
        if not session.conf.isModifiable(name) and started_with.get(name) != value:
            raise LocalError(
                f"--spark_conf {name}={value}: Spark is running already and takes this setting at its start only; it "
                f"has {started_with.get(name)!r}"
            )
    ours = options.view_as(SparkOptions)
    if is_given(options, "spark_master_url"):
        master: Any = options.view_as(SparkRunnerOptions).spark_master_url
        if master != context.master:
            raise LocalError(f"--spark_master_url={master}: Spark is running already, on {context.master}")
    if ours.spark_app_name and ours.spark_app_name != context.appName:
        raise LocalError(f"--spark_app_name={ours.spark_app_name}: Spark is running already, as {context.appName!r}")


def _start(options: PipelineOptions, given: Mapping[str, str]) -> SparkSession:
    elsewhere = _configured()
    master = _master(options, given, elsewhere)
    python = given.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    python = python or elsewhere.get("spark.pyspark.python") or sys.executable
    settings: dict[str, Any] = {
        "spark.app.name": _program(),
        "spark.python.daemon.module": "rmqio.runners.spark.daemon",
        # Over TCP each small task waits 40 ms for a delayed acknowledgement of the loopback interface
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }
    # What spark-submit and its files say goes before our defaults, what the pipeline's options say before both
    settings = {name: value for name, value in settings.items() if name not in elsewhere}
    # Reaches the virtual machine before Spark's own settings do, so that those can still name another configuration
    quiet = pathlib.Path(__file__).with_name("log4j2.properties").as_uri()
    environment = {
        "PYSPARK_PYTHON": python,
        "SPARK_SUBMIT_OPTS": f"-Dlog4j2.configurationFile={quiet} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".rstrip(),
    }
    if _submitted() and "spark.log.level" not in elsewhere:
        settings["spark.log.level"] = "FATAL"  # this virtual machine has its log already
    if master.startswith("local"):
        # a local run is nobody else's business; the UI looks at the variable only
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= {**given, "spark.master": master, "spark.pyspark.python": python}
    paths = (str(pathlib.Path(__file__).with_name("site")), given.get(_PYTHONPATH) or elsewhere.get(_PYTHONPATH))
    settings[_PYTHONPATH] = os.pathsep.join(filter(None, paths))  # see site/sitecustomize.py
    if name := options.view_as(SparkOptions).spark_app_name:
        settings["spark.app.name"] = name
    with _environment(environment), _sheltered():
        session = SparkSession.builder.config(map=settings).getOrCreate()
    atexit.register(_stop, session)
    return session


@contextlib.contextmanager
def _sheltered() -> Iterator[None]:
    """What starts Spark's virtual machine has it ignore SIGTERM, as PySpark does with SIGINT.

    Whoever stops a service, or `timeout`, signals all of its processes. The driver then lets the running micro-batch
    finish, for which it needs its virtual machine; that ends when its standard input does, with the driver.
    """
    if threading.current_thread() is not threading.main_thread():  # others may not touch signals
        yield
        return
    module: Any = java_gateway
    start = module.Popen

    def started(*arguments: Any, **options: Any) -> Any:
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            return start(*arguments, **options)  # returns when the program runs, which has inherited it by then
        finally:
            signal.signal(signal.SIGTERM, before)

    module.Popen = started
    try:
        yield
    finally:
        module.Popen = start


def _submitted() -> bool:
    """Whether this program was started by spark-submit, whose virtual machine waits for it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _master(options: PipelineOptions, given: Mapping[str, str], elsewhere: Mapping[str, str]) -> str:
    """The flag, else `--spark_conf spark.master`, else what Spark is configured with, else ours."""
    if is_given(options, "spark_master_url"):
        return str(options.view_as(SparkRunnerOptions).spark_master_url)
    if "spark.master" in given:
        return given["spark.master"]
    configured = elsewhere.get("spark.master") or os.environ.get("MASTER")
    return DEFAULT_MASTER if configured in _NOBODYS_CHOICE else str(configured)


def _configured() -> dict[str, str]:
    """Settings from outside of the pipeline: of spark-submit, else of spark-defaults.conf where one is set up."""
    if _submitted():
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else None)
    found: dict[str, str] = {}
    if folder is not None:
        with contextlib.suppress(OSError):
            for line in pathlib.Path(folder, "spark-defaults.conf").read_text().splitlines():
                if setting := _DEFAULTS_LINE.match(line):
                    found[setting[1]] = setting[2]
    return found


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables for Spark's start: its processes inherit them, this one has them no longer than that."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _partitions(base: SparkSession, given: Mapping[str, str], started: bool) -> str:
    """What the pipeline was given, what the session has that it runs in, else one partition for each core."""
    if _SHUFFLE_PARTITIONS in given:
        return given[_SHUFFLE_PARTITIONS]
    context = base.sparkContext
    if configured := base.conf.get(_SHUFFLE_PARTITIONS, None):
        return configured
    if started and not str(context.master).startswith("local"):
        _await_executors(context)
    return str(max(2, context.defaultParallelism))


def _await_executors(context: SparkContext) -> None:
    """Waits until no more executors join: only of those that are there does Spark count the cores."""
    if context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return
    scala: Any = context._jsc.sc()
    seen, since = 0, time.monotonic()
    ends = since + _EXECUTORS_WAIT_S
    while time.monotonic() < ends and not (seen and time.monotonic() - since >= _EXECUTORS_SETTLE_S):
        there = scala.getExecutorMemoryStatus().size() - 1  # one is the driver
        if there != seen:
            seen, since = there, time.monotonic()
        time.sleep(0.1)


def _stop(session: SparkSession) -> None:
    """At the end of the process: Spark, and the virtual machine if it is ours, are gone before the process is."""
    gateway: Any = SparkContext._gateway
    # A second Ctrl-C must not leave a half-stopped Spark behind; the virtual machine goes in any case.
    with contextlib.suppress(Exception):
        session.stop()
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None or process.stdin is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    with contextlib.suppress(Exception):
        process.stdin.close()  # it ends when its standard input does
        process.wait(_JVM_EXIT_S)


def _program() -> str:
    return os.path.basename(sys.argv[0]) or "Beam pipeline"
