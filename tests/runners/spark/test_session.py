"""The Spark of a pipeline, from its start to its end: separate programs, each with its own Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.waiting import runs, until

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes and sockets in Linux's /proc"),
]

SMALL = ["--spark_conf", "spark.driver.memory=600m"]


def processes_of(session: int) -> dict[int, str]:
    """Returns the living processes of an operating-system session, with their command lines."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                _, _, after = (folder / "stat").read_text().rpartition(")")
                state, _, _, sid = after.split()[:4]
                if int(sid) == session and state != "Z":
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")[:200]
            except OSError:
                continue
    return found


class Programs:
    """Starts programs in their own sessions, and ends what is left of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, source: str, *flags: str, command: tuple[str, ...] = (sys.executable,)) -> subprocess.Popen[bytes]:
        file = self.folder / "program.py"
        file.write_text(textwrap.dedent(source))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
        with (self.folder / "out").open("w") as out, (self.folder / "err").open("w") as err:
            # files: a pipe would not end before the last process that has it open
            process = subprocess.Popen(
                [*command, str(file), *flags],
                stdout=out,
                stderr=err,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def run(self, source: str, *flags: str, command: tuple[str, ...] = (sys.executable,)) -> tuple[Any, str]:
        """Returns the program's output as JSON, and its stderr."""
        process = self.start(source, *flags, command=command)
        out, err = self.output(process)
        assert process.returncode == 0, err
        return json.loads(out), err

    def output(self, process: subprocess.Popen[bytes]) -> tuple[str, str]:
        """Returns what the program printed, after it has ended."""
        process.wait()
        return (self.folder / "out").read_text(), (self.folder / "err").read_text()

    def close(self) -> None:
        for process in self.started:
            for pid in processes_of(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    running = Programs(tmp_path)
    yield running
    running.close()


LOCAL = """
    import json, logging, os, sys, warnings
    from pathlib import Path

    import apache_beam as beam
    from apache_beam.testing.util import assert_that, equal_to

    class Point:  # pickled by reference where it is an element
        def __init__(self, x):
            self.x = x

    def python_of(point):
        print("PRINTED-TEXT")
        logging.getLogger("mine").warning("LOGGED-TEXT")
        logging.getLogger("mine").info("HIDDEN-TEXT")
        warnings.warn("WARNED-TEXT")
        return point, sys.prefix

    def listening():
        owned, addresses = set(), []
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal() and (folder / "stat").exists():
                if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == os.getsid(0):
                    for each in (folder / "fd").iterdir():
                        target = os.readlink(each) if each.is_symlink() else ""
                        if target.startswith("socket:["):
                            owned.add(target[8:-1])
        for table in ("tcp", "tcp6"):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                _, local, _, state, *_, = line.split()
                if state == "0A" and line.split()[9] in owned:
                    addresses.append(local.partition(":")[0])
        return addresses

    def broken(_):
        raise ValueError("no good")

    def pipeline(*more):
        return beam.Pipeline(argv=["--runner=rmqio.runners.spark.SparkRunner", *sys.argv[1:], *more])

    def run(*more):
        p = pipeline(*more)
        found = p | beam.Create([Point(1)]) | beam.Map(python_of) | beam.MapTuple(lambda p, prefix: (p.x, prefix))
        assert_that(found, equal_to([(1, sys.prefix)]))
        p.run().wait_until_finish()

    def refusal(*more):
        try:
            run(*more)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    if __name__ == "__main__":
        before = dict(os.environ)
        run()
        from pyspark.sql import SparkSession
        spark = SparkSession.getActiveSession()
        context = spark.sparkContext
        told = {
            "imported": sorted(name for name in sys.modules if name.startswith("rmqio.")),
            "master": context.master, "application": context.appName, "ui": context.uiWebUrl, "listening": listening(),
            "python": context.pythonExec,
            "environment": sorted(name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)),
        }
        if sys.argv[1:]:
            first = context.applicationId
            warnings.simplefilter("ignore")
            run("--spark_master_url=local[*,4]")
            told["again"] = SparkSession.getActiveSession().sparkContext.applicationId == first
            told["memory"] = refusal("--spark_conf", "spark.executor.memory=1g")
            told["moved"] = refusal("--spark_master_url=local[2]")
            told["renamed"] = refusal("--spark_app_name=other")
            unheard = pipeline()
            _ = unheard | beam.Create([1]) | "Look" >> beam.Map(broken)
            unheard.run()
        print(json.dumps(told))
"""

# Lines that a JVM and Beam print. Spark's launcher requests the module, and no setting prevents that
NOT_OURS = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "WARNING:root:apitools not found, and bigquery client libraries are not available",
)


def test_a_plain_program_with_no_option_but_the_runner(programs: Programs) -> None:
    process = programs.start(LOCAL.replace("print(json", 'print("TOLD " + json'))
    process.wait()
    left = processes_of(process.pid)
    out, err = programs.output(process)
    assert process.returncode == 0, err
    told = json.loads(out.partition("TOLD ")[2])
    # whole texts from the worker, each once, and nothing from Java or Spark
    lines = [line for line in f"{out.partition('TOLD ')[0]}{err}".splitlines() if not line.startswith(NOT_OURS)]
    warned = [line for line in lines if "WARNED-TEXT" in line]
    assert sorted(lines) == sorted(["PRINTED-TEXT", "WARNING:mine:LOGGED-TEXT", *warned])
    assert len(warned) == 2, "the warning, and the line of source that Python shows below it"
    assert "UserWarning: WARNED-TEXT" in warned[0]
    assert told["master"] == "local[*,4]"
    assert told["application"] == "program.py"
    assert told["python"] == sys.executable
    # nobody else can reach it: 127.0.0.1, the same as an IPv6 address, and ::1
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert len(told["listening"]) >= 2, "the driver, and its blocks"
    assert told["ui"] is None
    assert set(told["listening"]) <= loopback
    assert not [
        name for name in told["environment"] if name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS")
    ]
    # of this project, only the parts of a runner and what finds Java: no client, no transform
    ours = (
        "rmqio.runners",
        "rmqio.local.errors",
        "rmqio.local.processes",
        "rmqio.repeats",
        "rmqio.errors",
        "rmqio.hints",
        "rmqio.loading",
        "rmqio.pyspark.chatter",
        "rmqio.model",
        "rmqio.interfaces",
    )
    packages = ("rmqio.pyspark", "rmqio.local")  # import nothing by themselves: their names resolve on first use
    assert not [name for name in told["imported"] if not name.startswith(ours) and name not in packages]
    assert left == {}, "what it started ends before it does"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """The output of a program that runs several pipelines, and its stderr."""
    running = Programs(tmp_path_factory.mktemp("several"))
    try:
        yield running.run(
            LOCAL.replace('print("PRINTED-TEXT")', 'print("PRINTED-TEXT", file=sys.stderr)'),
            *SMALL,
            "--spark_app_name=mine",
            "--spark_conf",
            "spark.sql.shuffle.partitions=3",
            "--default_sdk_harness_log_level=INFO",
        )
    finally:
        running.close()


def test_its_spark_serves_later_pipelines_and_says_what_it_cannot_change(several: tuple[Any, str]) -> None:
    told, err = several
    assert told["application"] == "mine"
    assert told["again"] is True
    assert told["memory"] == (
        "LocalError: --spark_conf spark.executor.memory=1g: Spark is running already and takes this setting at its "
        "start only; it has None. Set it where Spark is started"
    )
    assert told["moved"] == "LocalError: --spark_master_url=local[2]: Spark is running already, on local[*,4]"
    assert told["renamed"] == "LocalError: --spark_app_name=other: Spark is running already, as 'mine'"
    assert err.count("INFO:mine:HIDDEN-TEXT") == 2, "one for each of the two pipelines that ran"


ACTIVE = """
    import json, os, sys, threading

    import apache_beam as beam
    from pyspark.sql import SparkSession
    from rmqio import LookBack, Message, WriteToRocketMQ
    from rmqio.runners.spark import SparkRunner
    from rmqio.runners.spark.sessions.session import partitions, session_for
    from rmqio.testing import InMemoryClientFactory, InMemoryCluster

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("theirs")
    spark = builder.config("spark.driver.memory", "600m").config("spark.speculation", "true").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    settings = spark.conf.getAll

    def run(*flags):
        try:
            with beam.Pipeline(runner=SparkRunner(), argv=list(flags)) as p:
                side = beam.pvalue.AsList(p | "none" >> beam.Create([]))
                numbers = p | beam.Create([("a", 1), ("a", 2)])
                _ = numbers | beam.GroupByKey() | beam.Map(lambda kv, side: None, side=side)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def once(*flags):
        try:
            with InMemoryCluster() as cluster, beam.Pipeline(runner=SparkRunner(), argv=list(flags)) as p:
                cluster.create_topic("totals")
                factory, look_back = InMemoryClientFactory(cluster.name), LookBack(group="sink")
                write = WriteToRocketMQ("totals", id_fn=str, exactly_once=look_back, client_factory=factory)
                _ = p | beam.Create([Message(b"a")]) | "Totals" >> write
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def own(*flags):
        from apache_beam.options.pipeline_options import PipelineOptions
        return session_for(PipelineOptions(list(flags)))

    told = {"ran": run("--spark_conf", "spark.sql.session.timeZone=Asia/Tokyo")}
    told["same"] = SparkSession.getActiveSession() is spark
    told["changed"] = settings != spark.conf.getAll
    session = own("--spark_conf", "spark.sql.session.timeZone=Asia/Tokyo")
    told["same context"] = session.sparkContext is spark.sparkContext
    told["zone"] = session.conf.get("spark.sql.session.timeZone")
    told["partitions"] = [partitions(session), partitions(own("--spark_conf", "spark.sql.shuffle.partitions=7"))]
    told["static"] = run("--spark_conf", "spark.executor.cores=2")
    told["wrong"] = run("--spark_conf", "spark.sql.shuffle.partitions=many")
    told["moved"] = run("--spark_master_url=spark://there:7077")
    told["once"] = [once(), once("--streaming")]
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(run()))
    thread.start()
    thread.join()
    told["thread"] = elsewhere
    told["alive"] = spark.range(3).count()
    told["unchanged"] = settings == spark.conf.getAll
    print(json.dumps(told))
"""


def test_an_active_session_is_used_and_left_as_it_was(programs: Programs) -> None:
    told, _ = programs.run(ACTIVE)
    assert told["ran"] is None
    assert told["same context"] is True
    assert told["same"] is True
    assert told["changed"] is False
    assert told["unchanged"] is True
    assert told["zone"] == "Asia/Tokyo"
    assert told["partitions"] == [5, 7]
    assert "spark.executor.cores=2: Spark is running already and takes this setting at its start only" in told["static"]
    assert "LocalError: --spark_conf spark.sql.shuffle.partitions=many: Spark refuses it" in told["wrong"]
    assert told["moved"] == "LocalError: --spark_master_url=spark://there:7077: Spark is running already, on local[2]"
    assert all("Refused: Totals is an exactly-once write, and Spark's setting spark" in each for each in told["once"])
    assert all("spark.speculation=true" in each for each in told["once"])
    assert told["thread"] == [None], "also from a thread that has no active session"
    assert told["alive"] == 3


def test_a_failure_that_nobody_waits_for_is_reported_at_the_end(several: tuple[Any, str]) -> None:
    _, err = several
    assert err.count("nobody called wait_until_finish: Look: ValueError: no good") == 1


ENDLESS = """
    import sys, time
    from pathlib import Path

    import apache_beam as beam

    def endless(_):
        Path("running").touch()
        time.sleep(3600)

    if __name__ == "__main__":
        with beam.Pipeline(argv=["--runner=rmqio.runners.spark.SparkRunner", *sys.argv[1:]]) as p:
            _ = p | beam.Create([1]) | beam.Map(endless)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_that_a_running_pipeline_has_started(programs: Programs, number: signal.Signals) -> None:
    process = programs.start(ENDLESS, *SMALL)
    until((programs.folder / "running").exists, "an element", alive=[runs(process)], still_s=200)
    commands = " ".join(processes_of(process.pid).values())
    assert "java" in commands
    assert "rmqio.runners.spark.sessions.daemon" in commands
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    process.wait()
    assert process.returncode == -number
    left = partial(processes_of, process.pid)
    until(lambda: not left(), "the end of all processes", details=left, still_s=200)
    _, err = programs.output(process)
    lines = [line for line in err.splitlines() if not line.startswith(NOT_OURS)]
    if number == signal.SIGTERM:
        assert lines == []
    else:
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[-1].startswith("KeyboardInterrupt")
        assert len(lines) < 25
        assert err.count("Traceback") == 1
        assert "java" not in err.lower()
