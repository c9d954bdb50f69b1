"""Fixtures, markers and limits that hold for all tests."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from rmqio import internal_errors
from tests.gate.selection import JOBS, LANES, chosen, files, is_gate, needs_marker, nowhere
from tests.helpers.again import LEFT_OUT, fewer_examples, is_left_out, run_again
from tests.helpers.modes import MARK, Notes, unstarted
from tests.helpers.site.sitecustomize import watch_all
from tests.helpers.waiting import needed, patience

if TYPE_CHECKING:
    from rmqio.local import LocalRocketMQ
    from tests.helpers.ledgers.ledger import Lab
    from tests.helpers.servers.guarded import Guarded

# A busy machine must not fail a property: no deadline per example, and slow generation is no failure.
settings.register_profile("rmqio", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rmqio")
settings.register_profile("gate", settings.get_profile("rmqio"), derandomize=True, database=None)

# Modules and tests are a million objects that stay. Python's collector goes through all of them again and again, in a
# sixth of the time of tests that run pipelines.
gc.set_threshold(20_000, 20, 50)

# A JVM that keeps Spark's classes outlives its program, and there would be one in each fresh clone: Spark's jars are in
# the environment. tests/helpers/servers/jvms.py makes that file. Flink's are in the cache folder, and so is its file.
os.environ.setdefault("RMQIO_SPARK_CLASS_DATA", "0")
# Brokers of the tests live for seconds: compiling their code a second time takes longer than it saves, and so do
# verifying it, until there is a file of classes that are verified, and a collector that works in the background.
os.environ.setdefault(
    "RMQIO_LOCAL_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:-UseG1GC -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

_NOTES: pytest.StashKey[Notes] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--again", choices=sorted(LEFT_OUT), help="run the tests that another Python or Beam can change, or a sample"
    )
    parser.addoption("--gate", choices=JOBS, help="run what the gate has of these tests: tests/gate/selection.py")


def pytest_configure(config: pytest.Config) -> None:
    """Runners note what they start, for the marker `shows`. The gate draws the same examples each time.

    A package may begin to warn of something on any day. That is an error where the versions are the newest ones.
    """
    config.getini("filterwarnings").insert(0, "error" if config.getoption("again") == "python" else "default")
    if config.getoption("gate"):
        settings.load_profile("gate")
    folder = tempfile.TemporaryDirectory(prefix="rmqio-modes-")
    config.add_cleanup(folder.cleanup)
    config.stash[_NOTES] = Notes(Path(folder.name) / "modes")
    watch_all()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> object:
    """On a busy machine, all limits grow."""
    if (factor := patience()) == 1 or not settings.timeout:
        return None
    plugin: Any = item.config.pluginmanager.get_plugin("timeout")
    return plugin.pytest_timeout_set_timer(item, settings._replace(timeout=settings.timeout * factor))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Around a test with its fixtures."""
    if item.get_closest_marker(MARK) is None:
        return (yield)
    notes = item.config.stash[_NOTES]
    notes.begin()
    with notes.in_programs():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test fails that says it runs on something, and does not."""
    result = yield
    if item.get_closest_marker(MARK) is not None and (wrong := unstarted(item, item.config.stash[_NOTES])):
        pytest.fail(wrong, pytrace=False)
    return result


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not import what `--again` leaves out."""
    other = config.getoption("again")
    if not other or not collection_path.is_relative_to(config.rootpath):
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    return is_left_out(f"{path}/" if collection_path.is_dir() else path, other) or None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before tests that start Spark, when it is known that there are any."""
    runs_spark = any(item.get_closest_marker("spark") for item in session.items)
    if runs_spark and not session.config.option.collectonly and importlib.util.find_spec("pyspark"):
        from tests.helpers.servers.jvms import begin_sooner

        begin_sooner()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Gives the marker `gate` to the tests that tests/gate/selection.py lists."""
    if is_gate(item.nodeid, {mark.name for mark in item.iter_markers()}):
        item.add_marker("gate")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuses names that differ between processes, and tests of no target, and chooses for `--again` and `--gate`."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: give its parameters ids that do not change")
        if needs_marker(item.nodeid, {mark.name for mark in item.iter_markers()}):
            raise pytest.UsageError(
                f"{item.nodeid}: no job of the gate has it. Mark what it starts, or move it to unit"
            )
    if other := config.getoption("again"):
        _keep(config, items, run_again([item.nodeid for item in items], other))
    if job := config.getoption("gate"):
        markers = {item.nodeid: {mark.name for mark in item.iter_markers()} for item in items}
        if job in LANES and config.args == files(job) and (parts := nowhere(job, markers)):
            raise pytest.UsageError(f"tests/gate/selection.py names tests that are not there: {parts}")
        _keep(config, items, chosen(job, markers))
    if other or job:
        for item in items:
            fewer_examples(item)


def _keep(config: pytest.Config, items: list[pytest.Item], kept: set[str]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


@pytest.fixture(scope="session")
def rocketmq(rocketmq: LocalRocketMQ) -> Iterator[LocalRocketMQ]:
    """The broker of the run. If it has ended, waits say nothing about what is tested."""
    with needed(rocketmq.pid):
        yield rocketmq


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker with access control and TLS, one for a file: few files need it, and an idle one takes 8 % of a core."""
    from tests.helpers.servers.guarded import guarded_broker

    with guarded_broker(tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded


@pytest.fixture(scope="module")
def lab(rocketmq: LocalRocketMQ) -> Iterator[Lab]:
    """Topics and groups of their own on the broker of the run."""
    from tests.helpers.ledgers.ledger import Lab  # imports Beam, which most tests of units do without

    with contextlib.closing(Lab(rocketmq)) as lab:
        yield lab


@pytest.fixture(autouse=True)
def no_internal_errors() -> Iterator[list[int]]:
    """A row that is bad by an exception that nobody expected fails the test in whose process it happens."""
    found: list[int] = []
    internal_errors.counters.append(found.append)
    yield found
    internal_errors.counters.remove(found.append)
    assert not found, "an internal error: the log has its stack"
