"""The Spark runner on a real cluster: a standalone master and two workers, each process with its own address."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import textwrap
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.local import LocalRocketMQ
from tests.helpers.programs import ROOT, submitted_provinces
from tests.helpers.servers.spark_cluster import Cluster, Program, below
from tests.helpers.waiting import runs, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(900),  # several minutes on a busy machine
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in Linux's /proc"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.close()


@pytest.fixture
def program(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(source: str, *flags: str, submit: bool = False) -> Program:
        started.append(Program(cluster, tmp_path, source, *flags, submit=submit))
        return started[-1]

    yield start
    for each in started:
        each.close()


EVERYTHING = """
    import collections, os, sys, time
    from pathlib import Path

    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.testing.util import assert_that, equal_to
    from apache_beam.transforms import userstate

    HERE = Path(sys.argv[0]).resolve().parent

    class Point:  # an element, so that pickle looks for it in the main module
        def __init__(self, key, x):
            self.key, self.x = key, x

    def halved(x):  # a module-level helper that uses a module-level import
        return collections.Counter({"half": x // 2})["half"]

    class Places(beam.DoFn):
        def process(self, point):
            folder = os.getcwd()  # an executor's own
            (HERE / ("place-" + folder.replace("/", "_"))).write_text(sys.executable)
            while len([*HERE.glob("place-*")]) < 2:  # both executors take their share
                time.sleep(0.05)
            yield point.key, halved(point.x)

    class Running(beam.DoFn):
        SUM = userstate.CombiningValueStateSpec("sum", sum)
        END = userstate.TimerSpec("end", userstate.TimeDomain.WATERMARK)

        def process(self, kv, total=beam.DoFn.StateParam(SUM), end=beam.DoFn.TimerParam(END)):
            total.add(kv[1])
            end.set(1_000)

        @userstate.on_timer(END)
        def at_end(self, key=beam.DoFn.KeyParam, total=beam.DoFn.StateParam(SUM)):
            yield key, total.read()

    if __name__ == "__main__":
        with beam.Pipeline(argv=sys.argv[1:]) as p:
            points = p | beam.Create([Point(f"k{n % 3}", n) for n in range(30)]) | beam.Reshuffle()
            halves = points | beam.ParDo(Places())
            sums = halves | beam.CombinePerKey(sum)
            joined = sums | beam.Map(lambda kv, all: (*kv, sum(all.values())), all=beam.pvalue.AsDict(sums))
            sizes = halves | beam.GroupByKey() | beam.MapTuple(lambda key, values: (key, len(list(values))))
            stateful = halves | beam.ParDo(Running())
            assert_that(joined, equal_to([("k0", 65, 210), ("k1", 70, 210), ("k2", 75, 210)]), label="combine")
            assert_that(sizes, equal_to([("k0", 10), ("k1", 10), ("k2", 10)]), label="group")
            assert_that(stateful, equal_to([("k0", 65), ("k1", 70), ("k2", 75)]), label="state")
        from pyspark.sql import SparkSession
        print("MASTER", SparkSession.getActiveSession().sparkContext.master)
"""


def places(folder: Path) -> list[str]:
    return [each.read_text() for each in folder.glob("place-*")]


def test_a_pipeline_of_every_kind_runs_on_both_executors(
    cluster: Cluster, program: Callable[..., Program], tmp_path: Path
) -> None:
    out = program(EVERYTHING).output()
    assert f"MASTER {cluster.url}" in out
    assert places(tmp_path) == [sys.executable] * 2


def test_the_script_submits_to_the_cluster(cluster: Cluster, rocketmq: LocalRocketMQ, tmp_path: Path) -> None:
    defaults = (ROOT / "runners/spark/spark-defaults.conf").read_text()
    small = {"spark.driver.memory": "600m", "spark.executor.memory": "500m", "spark.driver.host": "127.0.0.1"}
    lines = [defaults, *(f"{name} {value}\n" for name, value in small.items())]
    (tmp_path / "spark-defaults.conf").write_text("".join(lines))
    environment = {"SPARK_CONF_DIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    found = submitted_provinces(rocketmq, "runners/spark/submit.sh", cluster.url, **environment)
    assert found == ["上海市", "北京市", "浙江省"]


def test_spark_submit_takes_the_session_and_the_cluster_that_it_names(
    cluster: Cluster, program: Callable[..., Program], tmp_path: Path
) -> None:
    out = program(EVERYTHING, submit=True).output()
    assert f"MASTER {cluster.url}" in out, "our default master must not go before spark-submit's"
    assert places(tmp_path) == [sys.executable] * 2


SLOW = """
    import os, random, sys, time
    from pathlib import Path

    import apache_beam as beam
    from apache_beam.testing.util import assert_that, equal_to
    from pyspark import TaskContext

    HERE = Path(sys.argv[0]).resolve().parent
    KEYS = random.Random(1).choices(range(20), k=200)  # a key's elements come from both executors

    def noted(what, value):
        with (HERE / f"{what}-{os.getpid()}").open("a") as file:
            file.write(f"{value}\\n")

    def first(n):
        noted("first", n)
        if TaskContext.get().partitionId() == 0:
            noted("zero", n)
        while len([*HERE.glob("first-*")]) < 2:  # both executors take their share, each in one process
            time.sleep(0.05)
        return KEYS[n], n

    def slowly(key, values):
        found = sorted(values)
        noted("grouped", key)
        mine = HERE / f"grouped-{os.getpid()}"
        while len(mine.read_text().split()) == 2 and not (HERE / "go-on").exists():
            time.sleep(0.05)
        return key, found

    if __name__ == "__main__":
        with beam.Pipeline(argv=sys.argv[1:]) as p:
            grouped = p | beam.Create(range(200)) | beam.Reshuffle() | beam.Map(first) | beam.GroupByKey()
            found = grouped | beam.MapTuple(slowly)
            assert_that(found, equal_to([(key, [n for n in range(200) if KEYS[n] == key]) for key in range(20)]))
        print("RIGHT")
"""

# The dealing depends on the order in which values came out of the previous shuffle. A repeated task must deal as it
# did the first time, since a part of its first output has already been read.
DEALT = SLOW.replace(
    "found = grouped | beam.MapTuple(slowly)",
    "as_they_came = grouped | beam.MapTuple(lambda key, values: (list(values), key))\n            "
    "found = as_they_came | 'Deal' >> beam.Reshuffle() | beam.MapTuple(lambda values, key: slowly(key, values))",
)
assert DEALT != SLOW


def noted(folder: Path, what: str) -> dict[int, list[str]]:
    """Returns what the workers of a step wrote down, by process."""
    return {int(each.name.split("-")[1]): each.read_text().split() for each in folder.glob(f"{what}-*")}


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(SLOW, id="behind a GroupByKey", marks=pytest.mark.exhaustive),
        pytest.param(DEALT, id="behind a GroupByKey and a Reshuffle"),
    ],
)
def test_a_worker_that_is_killed_in_the_middle_changes_nothing_in_the_result(
    source: str, cluster: Cluster, program: Callable[..., Program], tmp_path: Path
) -> None:
    running = program(source)

    def victim() -> Any:
        """Returns a worker whose Python has handled two of its groups, and is held there.

        A task first reads what is stored beside it. The other worker has the first partition. If everything is then
        read there, it therefore arrives in another order.
        """
        for worker in cluster.workers:
            mine = below(worker.pid)
            if not mine.isdisjoint(noted(tmp_path, "zero")):
                continue
            if any(pid in mine and len(keys) >= 2 for pid, keys in noted(tmp_path, "grouped").items()):
                return worker
        return None

    worker = until(victim, "a worker that has some of its groups", alive=[runs(running.process)], still_s=400)
    mine = below(worker.pid)
    lost = {pid: keys for pid, keys in noted(tmp_path, "grouped").items() if pid in mine}
    first = noted(tmp_path, "first")
    kept = {number for pid, numbers in first.items() if pid in mine for number in numbers}
    mine |= cluster.lose(worker)
    (tmp_path / "go-on").touch()
    try:
        assert "RIGHT" in running.output()
    finally:
        running.close()
        cluster.start_worker()
    handled = noted(tmp_path, "grouped")
    again = sorted(int(key) for pid, keys in handled.items() if pid not in mine for key in keys)
    assert set(again) >= {int(key) for keys in lost.values() for key in keys}, "what was lost was done again"
    # If the repeated output differed, Spark would repeat everything that had read any of it; old versions would not
    assert again == list(range(20)), "and nothing else was"
    assert kept, "the lost worker had prepared data for others"
    elsewhere = {number for pid, numbers in noted(tmp_path, "first").items() if pid not in mine for number in numbers}
    assert elsewhere >= kept, "which was lost with it, and made anew"


PACKAGES = """
    import sys

    import apache_beam as beam
    from apache_beam.testing.util import assert_that, equal_to

    def greeted(n):
        import of_extra, of_setup.inner
        return of_extra.text(n), of_setup.inner.text(n), __import__("of_extra").__file__.startswith("/"), sys.prefix

    if __name__ == "__main__":
        with beam.Pipeline(argv=sys.argv[1:]) as p:
            found = p | beam.Create([1]) | beam.Map(greeted)
            _ = found | beam.Map(repr) | beam.io.WriteToText("found", shard_name_template="")
"""


def project(folder: Path, name: str, files: dict[str, str]) -> Path:
    """Returns a project that setuptools can build."""
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    setup = (
        f"from setuptools import setup, find_packages\nsetup(name={name!r}, version='1.0', packages=find_packages(),"
    )
    modules = [each.removesuffix(".py") for each in files if "/" not in each and each.endswith(".py")]
    (folder / "setup.py").write_text(f"{setup} package_data={{'': ['*.txt']}}, py_modules={modules!r})\n")
    return folder


def source_distribution(folder: Path) -> Path:
    subprocess.run([sys.executable, "setup.py", "-q", "sdist"], cwd=folder, check=True, capture_output=True)
    (found,) = (folder / "dist").glob("*.tar.gz")
    return found


def test_packages_that_the_executors_have_not(program: Callable[..., Program], tmp_path: Path) -> None:
    extra = project(tmp_path / "extra", "of-extra", {"of_extra.py": "def text(n):\n    return f'extra {n}'\n"})
    beside = (
        "import pathlib\ndef text(n):\n    return pathlib.Path(__file__).with_name('data.txt').read_text() + str(n)\n"
    )
    files = {"of_setup/__init__.py": "", "of_setup/inner.py": beside, "of_setup/data.txt": "setup "}
    setup = project(tmp_path / "setup", "of-setup", files)
    flags = (f"--setup_file={setup / 'setup.py'}", f"--extra_package={source_distribution(extra)}")
    program(PACKAGES.replace('"found"', repr(str(tmp_path / "found"))), *flags).output()
    found = (tmp_path / "found").read_text()
    assert found == f"('extra 1', 'setup 1', True, {sys.prefix!r})\n"


SQL = """
    import os, sys

    os.environ["IS_DRIVER"] = "1"
    from rmqio.cli.main import main

    if __name__ == "__main__":
        sys.exit(main(["sql", "job.sql", *sys.argv[1:]]))
"""
FUNCTIONS = """
import os, pathlib, socket

if "IS_DRIVER" in os.environ:
    pathlib.Path(__file__).unlink()  # executors on other machines do not have it

def where(n: int) -> str:
    return f"{n * 2} {pathlib.Path(__file__).parts[-2]} {'IS_DRIVER' in os.environ}"
"""
JOB = """
CREATE FUNCTION place AS 'functions.where' LANGUAGE PYTHON;
CREATE TABLE numbers (n INT) WITH ('connector' = 'filesystem', 'path' = '{folder}/numbers', 'format' = 'json');
CREATE TABLE places (place STRING) WITH ('connector' = 'filesystem', 'path' = '{folder}/places', 'format' = 'json');
INSERT INTO places SELECT place(n) FROM numbers;
"""


def test_functions_of_sql_that_the_executors_have_from_the_session(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
    (tmp_path / "job.sql").write_text(JOB.format(folder=tmp_path))
    (tmp_path / "numbers").mkdir()
    for part in range(4):
        (tmp_path / f"numbers/{part}.json").write_text("".join(f'{{"n": {part * 10 + n}}}\n' for n in range(10)))
    for missing in (True, False):
        (tmp_path / "functions.py").write_text(textwrap.dedent(FUNCTIONS))
        (tmp_path / "kept").mkdir(exist_ok=True)
        (tmp_path / "kept/functions.py").write_text(textwrap.dedent(FUNCTIONS))
        running = program(
            SQL, *([] if missing else [f"--spark_conf=spark.submit.pyFiles={tmp_path}/kept/functions.py"])
        )
        if missing:
            _, err = running.process.communicate()
            assert running.process.returncode == 1
            assert "there is no module functions" in err, err
            assert "--spark_conf spark.submit.pyFiles=FILE" in err, err
        else:
            running.output()
    lines = [json.loads(line) for file in (tmp_path / "places").iterdir() for line in file.read_text().splitlines()]
    assert sorted(int(each["place"].split()[0]) for each in lines) == [n * 2 for n in range(40)]
    assert all(each["place"].endswith("False") for each in lines), "no row was computed in the driver"


def test_a_packed_environment(program: Callable[..., Program], tmp_path: Path) -> None:
    # A real environment is packed with everything in it. This one refers to this Python's packages and adds one.
    folder = tmp_path / "env"
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    here = [each for each in sys.path if each.endswith("site-packages")]
    (packages / "others.pth").write_text("".join(f"import site; site.addsitedir({each!r})\n" for each in here))
    (packages / "of_extra.py").write_text("def text(n):\n    return f'packed {n}'\n")
    (packages / "of_setup").mkdir()
    (packages / "of_setup/inner.py").write_text("def text(n):\n    return f'packed {n}'\n")
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(folder, ".")
    source = PACKAGES.replace('"found"', repr(str(tmp_path / "found")))
    archives = f"--spark_conf=spark.archives={tmp_path / 'env.tar.gz'}#environment"
    program(source, archives, "--spark_conf=spark.pyspark.python=./environment/bin/python").output()
    found: tuple[Any, ...] = eval((tmp_path / "found").read_text())
    assert found[:3] == ("packed 1", "packed 1", True)
    assert re.fullmatch(r".*/worker-\d+/app-.*/environment", found[3]), "Python itself is the unpacked one"


ENRICHED = """
    import os, sys, time
    from pathlib import Path

    import apache_beam as beam
    import pyarrow as pa
    from apache_beam.testing.util import assert_that, equal_to

    from rmqio.enrich import Enrich, Table

    HERE = Path(sys.argv[0]).resolve().parent

    class Noted:  # a source that says when it is read
        shown = "the source"

        def identity(self):
            return ("noted",)

        def version(self):
            return None

        def rows(self):
            return None

        def size(self):
            return 0

        def batches(self, columns):
            with (HERE / "reads").open("a") as file:
                file.write(os.getcwd() + chr(10))
            yield pa.record_batch({"id": [f"u{n}" for n in range(5_000)], "n": list(range(5_000))})

    def slowly(element):
        folder = os.getcwd()  # an executor's own: its table is in it, as on the disk of a machine
        versions = [each.parent.name for each in Path(folder).glob("cache/*/*/manifest.json")]
        (HERE / ("place-" + folder.replace("/", "_"))).write_text(" ".join(versions))
        while len([*HERE.glob("place-*")]) < 2:  # both executors take their share
            time.sleep(0.05)
        return element["id"], element["n"]

    if __name__ == "__main__":
        table = Table(Noted(), cache_dir="cache", shared_dir=str(HERE / "shared"))
        with beam.Pipeline(argv=sys.argv[1:]) as p:
            elements = p | beam.Create([{"id": f"u{n}"} for n in range(200)]) | beam.Reshuffle()
            found = elements | Enrich(table, "id", ["n"]) | beam.Map(slowly)
            assert_that(found, equal_to([(f"u{n}", n) for n in range(200)]))
        print("RIGHT")
"""


def test_one_executor_builds_a_table_and_the_other_fetches_it(program: Callable[..., Program], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")
    assert "RIGHT" in program(ENRICHED).output()
    (version,) = [each.parent.name for each in (tmp_path / "shared").glob("*/*/manifest.json")]
    assert places(tmp_path) == [version] * 2, "a version is named after its content"
    assert len((tmp_path / "reads").read_text().splitlines()) == 1
