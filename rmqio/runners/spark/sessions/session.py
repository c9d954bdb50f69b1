"""Provides the SparkSession of a pipeline: in the caller's Spark if there is one, else in a Spark of our own."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import pyspark
from apache_beam.options.pipeline_options import PipelineOptions, SparkRunnerOptions, StandardOptions
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession

from rmqio.errors import LocalError
from rmqio.local.errors import LocalBrokerError
from rmqio.local.processes import USERS_OWN, find_java, identity_of, released_major
from rmqio.runners import class_data
from rmqio.runners.checkpoints import make_folder
from rmqio.runners.errors import NotReady
from rmqio.runners.spark.bootstrap import MISMATCH, versions
from rmqio.runners.spark.options import SparkOptions, is_given

if TYPE_CHECKING:
    from pyspark.sql._typing import OptionalPrimitiveType


# Kinds of Spark masters: where a Spark runs.


def is_local(master: str | None) -> bool:
    """Returns whether the tasks run in the driver's process: no machine can be lost without the driver."""
    return master is not None and (master == "local" or master.startswith("local["))


def is_on_this_machine(master: str | None) -> bool:
    """Returns whether nobody on another machine needs to reach it: `local`, or `local-cluster[...]` of processes."""
    return is_local(master) or (master is not None and master.startswith("local-cluster["))


# Passes on what Spark's JVM and its Python workers write to standard error, without lines that mean nothing.

_MEANINGLESS: Final = frozenset({b"WARNING: Using incubator modules: jdk.incubator.vector\n"})
"""Spark's launcher asks the JVM for this module; the JVM warns of it at each start, and no option turns that off."""
_STDERR: Final = 2


def filtered(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Returns the process that `start` starts with `stderr=subprocess.PIPE`, and copies its standard error."""
    process = start()
    if process.stderr is not None:
        threading.Thread(target=_copy, args=(process.stderr,), name="spark-stderr", daemon=True).start()
    return process


def _copy(source: IO[bytes]) -> None:
    with source:
        while data := os.read(source.fileno(), 1 << 16):
            # Progress and prompts end without a line break: they are passed on as they come.
            kept = b"".join(line for line in data.splitlines(keepends=True) if line not in _MEANINGLESS)
            while kept:
                try:
                    kept = kept[os.write(_STDERR, kept) :]
                except OSError:
                    break  # our own standard error is closed; Spark must not wait for a reader all the same


# Whether Spark will find a Java: without one, and with an old one, its launcher and PySpark print forty lines.

_MINIMUM: Final = 17


def require_java() -> None:
    """Raises `NotReady` if Spark's launcher will find no Java, or one that is too old.

    It looks in JAVA_HOME, and without it on the PATH.
    """
    if has_own_environment():
        return
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "")
    if not (java.is_file() and os.access(java, os.X_OK)):
        lacks = f"JAVA_HOME is {home}, which has no bin/java" if home else "JAVA_HOME is not set, and PATH has no java"
    elif (major := released_major(java)) is not None and major < _MINIMUM:
        lacks = f"{java} is Java {major}"
    else:
        return
    raise NotReady(
        f"SparkRunner needs Java {_MINIMUM} or newer, but {lacks}. Install it, e.g. with apt install "
        f"openjdk-{_MINIMUM}-jre-headless, and set JAVA_HOME or PATH"
    )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Raises `NotReady` if Spark's JVM has not started in this context, and the reason is its Java."""
    try:
        yield
    except Exception:
        if SparkContext._gateway is None and not has_own_environment():
            try:
                find_java({**os.environ}, minimum_major=_MINIMUM, program="Spark")
            except LocalBrokerError as error:
                raise NotReady(str(error)) from None
        raise


def has_own_environment() -> bool:
    """Returns whether Spark's configuration has a file that can set JAVA_HOME."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    return bool(folder) and Path(str(folder), "spark-env.sh").exists()


# Spark's classes in a file of the cache folder, so that the JVM of a local run starts in two thirds of the time.

VARIABLE: Final = "RMQIO_SPARK_CLASS_DATA"
"""0 turns it off."""
FLAGS: Final = ("-XX:+UseSerialGC",)
"""A local JVM's collector: with a heap of a gigabyte, one that works in the background costs more than it saves."""
_USERS_OWN: Final = ("SPARK_SUBMIT_OPTS", *USERS_OWN)
_USERS_SETTINGS: Final = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")


class ClassData(class_data.ClassData):
    """The file for one Java and one Spark, and this process's part in it.

    There are no options where it is turned off, or where the user gives options of the JVM's own kind, which could
    contradict these. A shell would split them; see `shlex`.

    Args:
      settings: of Spark, all that are given.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        given = [*map(os.environ.get, _USERS_OWN), *map(settings.get, _USERS_SETTINGS)]
        if os.environ.get(VARIABLE) == "0" or any(text and "-X" in text for text in given):
            return
        self.options = FLAGS
        path = _class_path(settings)
        if any(map(_has_files, path)):  # the JVM refuses to archive beside a folder with files
            return
        with contextlib.suppress(OSError):  # a folder that cannot be written, or no Java: Spark says what is wrong
            self.look("spark", _key(path))
        self.options = tuple(map(shlex.quote, self.options))


def _class_path(settings: Mapping[str, str]) -> list[str]:
    """Return what Spark's launcher adds to its jars on the class path of the driver (AbstractCommandBuilder.java)."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    conf = os.environ.get("SPARK_CONF_DIR") or str(Path(home) / "conf")
    added = [os.environ.get("SPARK_DIST_CLASSPATH"), settings.get("spark.driver.extraClassPath")]
    folders = [conf, os.environ.get("HADOOP_CONF_DIR"), os.environ.get("YARN_CONF_DIR")]
    return [each for text in (*folders, *added) for each in (text or "").split(os.pathsep) if each]


def _has_files(entry: str) -> bool:
    try:
        return Path(entry).is_dir() and any(Path(entry).iterdir())
    except OSError:
        return True


def _key(path: Iterable[str]) -> str:
    """Changes with Java, Spark, the options and the class path. Raises `OSError` if there is no Java."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise OSError("no java")
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    parts: Iterable[object] = (
        *identity_of(Path(java)),
        pyspark.__version__,
        spark,
        spark.stat().st_mtime_ns,
        FLAGS,
        *path,
    )
    return hashlib.blake2b(repr(tuple(parts)).encode(), digest_size=8).hexdigest()


# local[n] never retries a task; local[n,tries] does
DEFAULT_MASTER: Final = "local[*,4]"
# The values that Spark's own launcher sets if nobody chose a master
_NOBODYS_CHOICE: Final = (None, "local[*]")
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_UI: Final = "spark.ui.enabled"
_DEFAULTS_LINE: Final = re.compile(r"\s*(spark\.[^\s=:]+)\s*[\s=:]\s*(.*?)\s*$")
# Settings for the plans of a pipeline. The caller's session keeps its own settings.
_PLAN_SETTINGS: Final = {
    # How much Spark sends to Python at a time. A row holds many elements, so the limit in bytes matters
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
    # Beam decides where stages end, and the runner numbers partitions, so there is nothing to adapt
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
_UNFIT: Final = (
    re.compile(r"Error from python worker:\s*(.*?)\s*PYTHONPATH was:", re.DOTALL),
    re.compile(rf"{re.escape(MISMATCH)}([^\n]*)"),
    re.compile(r"(\[PYTHON_VERSION_MISMATCH\][^\n]*)"),
    re.compile(r"(ModuleNotFoundError: No module named '(?:rmqio|apache_beam|pyarrow|pandas)\b[^\n]*)"),
)
_EXECUTORS_WAIT_S: Final = 30.0
_EXECUTORS_SETTLE_S: Final = 2.0  # a cluster counts as complete if no executor has joined for so long
_JVM_EXIT_S: Final = 10.0


def session_for(options: PipelineOptions) -> SparkSession:
    """Returns a session for one pipeline.

    Uses an active session with its cluster, so `spark-submit pipeline.py` works. The runner's settings go into another
    session of the same application, which shares only the executors. A Spark that is started here also serves later
    pipelines of the process, and ends with the process.

    Raises:
      NotReady: there is no Java.
      LocalError: Spark Connect is in use, or Spark does not accept a setting, at all or while it is running.
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
    """Returns the number of shuffle partitions of the pipeline's session."""
    return int(session.conf.get(_SHUFFLE_PARTITIONS) or 0)


def spark_settings(options: PipelineOptions) -> dict[str, str]:
    """Returns the settings of `--spark_conf` by name. Raises `LocalError` for a setting that is not name=value."""
    given: Sequence[str] = options.view_as(SparkOptions).spark_conf or ()
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise LocalError(
                f"--spark_conf {each!r}: give it as name=value, e.g. --spark_conf spark.executor.memory=2g"
            )
        if not name.startswith("spark."):
            raise LocalError(
                f"--spark_conf {each!r}: Spark's settings begin with 'spark.', and Spark silently ignores others. "
                "Check the name"
            )
        found[name] = value
    return found


def unfit_workers(text: str) -> LocalError | None:
    """Returns an error if Spark's message about a failed job says that its workers' Python cannot run pipelines."""
    found = next((match for each in _UNFIT if (match := each.search(text))), None)
    return found and LocalError(
        f"the Python of Spark's workers cannot run the pipeline: {found[1].strip()}. It must have the driver's minor "
        f"version, and the driver's versions of Beam and rmqio: {_install()}. Set --spark_conf "
        "spark.pyspark.python=PATH to use another Python. See docs/spark-cluster.md"
    )


def _install() -> str:
    here = versions()
    return f"pip install 'apache-beam=={here['apache_beam']}' 'rmqio[spark]=={here['rmqio']}'"


_PYTHONPATH: Final = "spark.executorEnv.PYTHONPATH"
_NO_CONNECT: Final = (
    "SparkRunner does not work over Spark Connect yet: it needs broadcasts and accumulators, which Connect lacks. "
    "Unset SPARK_REMOTE and spark.api.mode, and run the driver next to the cluster: use spark-submit or "
    "--spark_master_url=spark://..."
)


def _refuse_connect(given: Mapping[str, str]) -> None:
    names = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
    modes = (os.environ.get("SPARK_API_MODE", ""), given.get("spark.api.mode", ""))
    if any(map(os.environ.get, names)) or "spark.remote" in given or "connect" in map(str.lower, modes):
        raise LocalError(_NO_CONNECT)


def _running() -> SparkSession | None:
    """Returns the active session. In a thread without one, returns the session of the running Spark."""
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _check_running(session: SparkSession, options: PipelineOptions, given: Mapping[str, str]) -> None:
    """Raises `LocalError` for options that a running Spark cannot meet because it was started with other values."""
    context = session.sparkContext
    started_with = dict(context.getConf().getAll()) if given else {}
    for name, value in given.items():
        if not session.conf.isModifiable(name) and started_with.get(name) != value:
            raise LocalError(
                f"--spark_conf {name}={value}: Spark is running already and takes this setting at its start only; it "
                f"has {started_with.get(name)!r}. Set it where Spark is started"
            )
    ours = options.view_as(SparkOptions)
    if is_given(options, "spark_master_url"):
        master: str = options.view_as(SparkRunnerOptions).spark_master_url
        if master != context.master:
            raise LocalError(f"--spark_master_url={master}: Spark is running already, on {context.master}")
    if ours.spark_app_name and ours.spark_app_name != context.appName:
        raise LocalError(f"--spark_app_name={ours.spark_app_name}: Spark is running already, as {context.appName!r}")


def _start(options: PipelineOptions, given: Mapping[str, str]) -> SparkSession:
    elsewhere = configured()
    master = _master(options, given, elsewhere)
    python = given.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    python = python or elsewhere.get("spark.pyspark.python") or sys.executable
    settings: dict[str, OptionalPrimitiveType] = {
        "spark.app.name": _program(),
        "spark.python.daemon.module": "rmqio.runners.spark.sessions.daemon",
        # Over TCP, each small task waits 40 ms for a delayed acknowledgement on the loopback interface
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }
    # Settings of spark-submit and its files override these defaults, and the pipeline's options override both
    settings = {name: value for name, value in settings.items() if name not in elsewhere}
    # The JVM gets this before Spark's own settings, so that these can still name another configuration
    quiet = pathlib.Path(__file__).with_name("log4j2.properties").as_uri()
    quiet_options = f"-Dlog4j2.configurationFile={quiet} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".rstrip()
    environment = {"PYSPARK_PYTHON": python, "SPARK_SUBMIT_OPTS": quiet_options}
    if _submitted() and "spark.log.level" not in elsewhere:
        settings["spark.log.level"] = "FATAL"  # the JVM of spark-submit has already set up its log
    if is_on_this_machine(master):
        # Nobody else needs to reach such a run. The UI only uses the variable
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if is_local(master) and not options.view_as(StandardOptions).streaming and _UI not in elsewhere:
        settings[_UI] = "false"  # it ends with the run, and takes 0.4 s of its start
    settings |= {**given, "spark.master": master, "spark.pyspark.python": python}
    paths = (str(pathlib.Path(__file__).with_name("site")), given.get(_PYTHONPATH) or elsewhere.get(_PYTHONPATH))
    settings[_PYTHONPATH] = os.pathsep.join(filter(None, paths))  # see site/sitecustomize.py
    if name := options.view_as(SparkOptions).spark_app_name:
        settings["spark.app.name"] = name
    data = None
    if is_local(master) and not _submitted():
        data = ClassData({**elsewhere, **given})
        environment["SPARK_SUBMIT_OPTS"] = " ".join([environment["SPARK_SUBMIT_OPTS"], *data.options])
    if not _submitted():
        require_java()
    if sys.stderr.isatty():
        print(f"starting Spark on {master} ...", file=sys.stderr, flush=True)
    try:
        with contextlib.nullcontext() if data is not None and data.options else explained():
            with _environment(environment), _sheltered():
                session = SparkSession.builder.config(map=settings).getOrCreate()
    except Exception:
        if data is None or not data.options or SparkContext._gateway is not None:
            raise
        # The JVM has not started: perhaps it does without what was only to make it faster
        data.drop()
        environment["SPARK_SUBMIT_OPTS"] = quiet_options
        with explained(), _environment(environment), _sheltered():
            session = SparkSession.builder.config(map=settings).getOrCreate()
    jvm = getattr(SparkContext._gateway, "proc", None)
    if data is not None and jvm is not None:
        data.started(jvm.pid)
    atexit.register(_stop, session, data)
    return session


@contextlib.contextmanager
def _sheltered() -> Iterator[None]:
    """Makes the JVM ignore SIGTERM if it is started in this context, as PySpark does for SIGINT.

    A service manager, or `timeout`, sends the signal to all processes of a service. The driver then lets the running
    micro-batch finish, and needs the JVM for that. The JVM ends with the driver, when its standard input is closed.
    Only a JVM that PySpark no longer waits for, because of Ctrl-C, cannot report to it and would stay: it is killed.
    """
    if threading.current_thread() is not threading.main_thread():  # other threads must not set signal handlers
        yield
        return
    module: Any = java_gateway
    start = module.Popen
    begun: list[subprocess.Popen[bytes]] = []

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            # When this returns, the program runs and has inherited the setting.
            begun.append(filtered(lambda: start(*arguments, **{"stderr": subprocess.PIPE, **options})))
            return begun[-1]
        finally:
            signal.signal(signal.SIGTERM, before)

    module.Popen = started
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:
            for process in begun:
                process.kill()
        raise
    finally:
        module.Popen = start


def _submitted() -> bool:
    """Returns whether spark-submit started this program. Its JVM then waits for the program."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _master(options: PipelineOptions, given: Mapping[str, str], elsewhere: Mapping[str, str]) -> str:
    """Returns the flag, else `--spark_conf spark.master`, else Spark's configured master, else our default."""
    if is_given(options, "spark_master_url"):
        return str(options.view_as(SparkRunnerOptions).spark_master_url)
    if "spark.master" in given:
        return given["spark.master"]
    configured = elsewhere.get("spark.master") or os.environ.get("MASTER")
    return DEFAULT_MASTER if configured in _NOBODYS_CHOICE else str(configured)


def configured() -> dict[str, str]:
    """Returns settings from outside the pipeline: of spark-submit, else of a configured spark-defaults.conf."""
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
    """Sets environment variables while Spark starts. Its processes inherit them."""
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
    """Returns the pipeline's setting, else the setting of the caller's session, else one partition for each core."""
    if _SHUFFLE_PARTITIONS in given:
        return given[_SHUFFLE_PARTITIONS]
    context = base.sparkContext
    if configured := base.conf.get(_SHUFFLE_PARTITIONS, None):
        return configured
    if started and not is_local(context.master):
        _await_executors(context)
    return str(max(2, context.defaultParallelism))


def _await_executors(context: SparkContext) -> None:
    """Waits until no more executors join, because Spark only counts the cores of executors that have joined."""
    if context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return
    scala = context._jsc.sc()
    seen, since = 0, time.monotonic()
    ends = since + _EXECUTORS_WAIT_S
    while time.monotonic() < ends and not (seen and time.monotonic() - since >= _EXECUTORS_SETTLE_S):
        there = scala.getExecutorMemoryStatus().size() - 1  # one is the driver
        if there != seen:
            seen, since = there, time.monotonic()
        time.sleep(0.1)


def _stop(session: SparkSession, data: ClassData | None = None) -> None:
    """Stops Spark, and the JVM if it is ours, at the end of the process."""
    gateway = SparkContext._gateway
    _leave_accumulator_server(session.sparkContext)
    # A second Ctrl-C must not leave a half-stopped Spark behind, so the JVM ends in any case
    with contextlib.suppress(Exception):
        session.stop()
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None or process.stdin is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    with contextlib.suppress(Exception):
        process.stdin.close()  # the JVM ends when its standard input is closed
        if data is None or not data.is_made:
            process.wait(_JVM_EXIT_S)


def _leave_accumulator_server(context: SparkContext) -> None:
    """Lets the server of accumulators end by itself: PySpark would wait up to a second for its next poll.

    All jobs have ended, so nothing more arrives there. The JVM closes the connection when it stops, which the server
    would report as an error. Its thread is a daemon. Its socket's file, which PySpark removes at its end, goes now.
    """
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None
        server.server_shutdown = True
        if isinstance(server.server_address, str):
            pathlib.Path(server.server_address).unlink(missing_ok=True)
        context._accumulatorServer = None  # type: ignore[assignment]


def _program() -> str:
    return os.path.basename(sys.argv[0]) or "Beam pipeline"


# Whether a folder is on this machine, or on a file system that only Spark knows.

_NAMES: Final = ("fs.defaultFS", "fs.default.name")
_UNKNOWN: Final = "unknown:"


def make_local_folder(folder: str | None, given: Mapping[str, str]) -> Path | None:
    """Makes a folder for checkpoints that is certainly on this machine, before Spark starts, and returns it.

    Raises `NotReady`. None: the folder may be elsewhere, or Spark runs already.

    Without a scheme, a folder is on Spark's default file system, which only a configuration makes another one.

    Args:
      given: Spark's settings.
    """
    if not folder or SparkContext._active_spark_context is not None:
        return None
    if folder.startswith("file:") or (":" not in folder and _default_file_system(given).startswith("file:")):
        path = Path(folder.removeprefix("file://").removeprefix("file:")).absolute()
        make_folder(path)
        return path
    return None


def _default_file_system(given: Mapping[str, str]) -> str:
    """The URL of Spark's default file system, in the order in which Spark reads its configuration."""
    if has_own_environment():  # a script, which can name other folders
        return _UNKNOWN
    settings = {**configured(), **given}
    found = [settings[name] for name in (f"spark.hadoop.{each}" for each in _NAMES) if name in settings]
    found = found or [*_of_hadoop()]
    return next((each for each in found if not each.startswith("file:")), "file:")


def _of_hadoop() -> Iterator[str]:
    """Yields the default file systems that Hadoop's files name; a file that cannot be read may name any."""
    home = os.environ.get("SPARK_HOME")
    folders = [os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")]
    for folder in filter(None, [*folders, home and os.path.join(home, "conf")]):
        for path in Path(folder).glob("*-site.xml"):
            try:
                root = ET.parse(path).getroot()
            except (OSError, ET.ParseError):
                yield _UNKNOWN
                continue
            for each in root:
                if each.tag != "property":  # a file that is included
                    yield _UNKNOWN
                elif (each.findtext("name") or "").strip() in _NAMES:
                    yield (each.findtext("value") or "").strip()
