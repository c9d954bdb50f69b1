"""Jobs of a folder: they follow its files, survive their crashes, and go on with the old text if the new one cannot."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.jobs.process import Timing
from rmqio.jobs.state import Lock
from rmqio.jobs.supervisor import ANOTHER_STATE
from tests.unit.jobs.supervising import FOREVER, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.end()


def test_files_that_come_change_and_go_start_upgrade_and_stop_their_job_alone(lab: Lab) -> None:
    lab.write("a", FOREVER.format("a"))
    lab.write("group/a", FOREVER.format("b"))
    lab.until(lambda: lab.is_running("a", "a") and lab.is_running("group/a", "b"), "both")
    pid = lab.status("a").pid
    lab.write("a/log", FOREVER.format("c"))  # the name of a file of the other job
    lab.write("group/a", FOREVER.format("b2"))
    lab.until(lambda: lab.is_running("group/a", "b2") and lab.is_running("a/log", "c"), "the upgrade, and a new one")
    (lab.folder / "group/a.sql").unlink()
    lab.until(lambda: [each.name for each in lab.state.statuses()] == ["a", "a/log"], "one is gone")
    assert lab.status("a").pid == pid
    assert lab.status("a").restarts == 0
    lab.interrupt()
    lab.supervisor.step()
    assert "all jobs are being stopped" in lab.told


def test_a_text_that_is_not_valid_is_refused_once_and_the_old_one_goes_on(lab: Lab) -> None:
    lab.write("a", FOREVER.format("one"))
    lab.until(lambda: lab.is_running("a", "one"), "the job")
    pid = lab.status("a").pid
    lab.write("a", "not valid")
    lab.until(lambda: bool(lab.status("a").refused), "the refusal")
    lab.for_looks(10)
    refusal = "a: refused: job.sql:1:1: this is not valid\n  not valid\n  ^^^\nthe job continues with its old text"
    assert [each for each in lab.told if "refused" in each] == [refusal]
    assert (lab.status("a").state, lab.status("a").pid) == ("running", pid)
    assert lab.state.job("a").read_text() == FOREVER.format("one").encode()
    lab.write("a", FOREVER.format("one"))
    lab.until(lambda: not lab.status("a").refused, "the old text is the wanted one again")
    assert lab.status("a").pid == pid
    lab.write("a", FOREVER.format("two"))
    lab.until(lambda: lab.is_running("a", "two"), "the new text")


def test_a_text_with_the_same_plan_is_taken_over_and_the_job_goes_on(lab: Lab) -> None:
    lab.write("a", FOREVER.format("one"))
    lab.until(lambda: lab.is_running("a", "one"), "the job")
    pid, text = lab.status("a").pid, "# a comment\n" + FOREVER.format("one")
    lab.write("a", text)
    lab.until(lambda: lab.state.job("a").read_text() == text.encode(), "the new text")
    lab.for_looks(5)
    assert (lab.status("a").state, lab.status("a").pid) == ("running", pid)
    assert lab.told[-1] == "a: the new text has the same plan: the job goes on"
    lab.restart()
    lab.until(lambda: lab.is_running("a", "one"), "its start with the supervisor")


def test_a_job_goes_on_until_it_is_done(lab: Lab) -> None:
    lab.write("a", FOREVER.format("one"))
    lab.until(lambda: lab.is_running("a", "one"), "the job")
    lab.write("a", FOREVER.format("two"))
    lab.until(lambda: lab.is_running("a", "two"), "the upgrade")
    lab.restart()
    lab.until(lambda: lab.is_running("a", "two"), "its start with the supervisor")
    lab.write("a", "print('last')")
    lab.until(lambda: lab.status("a").state == "done", "its end")
    assert lab.resumed == [False, True, True, True]
    lab.state.request("start", "a")
    lab.until(lambda: len(lab.resumed) == 5, "another run")
    assert not lab.resumed[-1]


def test_a_new_job_that_is_not_valid_does_not_start_until_it_is(lab: Lab) -> None:
    lab.write("a", "not valid")
    lab.until(lambda: lab.status("a").state == "refused", "the refusal")
    assert lab.state.job("a").read_text() is None
    lab.write("a", FOREVER.format("valid"))
    lab.until(lambda: lab.is_running("a", "valid"), "the job")
    assert lab.status("a").refused == ""


def test_a_text_that_the_runner_refuses_at_its_start_gives_way_to_the_old_one(lab: Lab) -> None:
    lab.write("a", FOREVER.format("one"))
    lab.until(lambda: lab.is_running("a", "one"), "the job")
    error = f"rmqio sql: /x {ANOTHER_STATE[0]} pipeline: it has 2 sources"
    lab.write("a", f"raise SystemExit({error!r})")
    lab.until(lambda: bool(lab.status("a").refused) and lab.is_running("a", "one"), "the old text")
    assert lab.status("a").refused == error.removeprefix("rmqio sql: ")
    assert lab.status("a").restarts == 0
    assert lab.state.job("a").read_text() == FOREVER.format("one").encode()


def test_a_new_job_whose_checkpoint_is_of_another_query_does_not_try_again_and_again(lab: Lab) -> None:
    lab.write("a", f"raise SystemExit('rmqio sql: /x {ANOTHER_STATE[0]} query: INSERT INTO x is new')")
    lab.until(lambda: lab.status("a").state == "refused", "the refusal")
    lab.now += 1000
    lab.for_looks(10)
    status = lab.status("a")
    assert (status.restarts, status.refused) == (0, f"/x {ANOTHER_STATE[0]} query: INSERT INTO x is new")
    lab.state.request("start", "a")
    lab.until(lambda: lab.printed("a").count("started, process") == 2, "another try")


@pytest.mark.parametrize("module", ["rmqio.runners.spark.streaming.checkpoint", "rmqio.sql.runtime.runners"])
def test_the_runners_say_it_in_the_words_that_are_looked_for(module: str) -> None:
    found = find_spec(module)  # not imported: an older Beam lacks private names that the Spark runner imports
    assert found is not None
    assert found.origin is not None
    assert ANOTHER_STATE[0] in Path(found.origin).read_text(encoding="utf-8")


def test_a_job_that_fails_starts_again_later_each_time(lab: Lab) -> None:
    lab.write("a", "raise SystemExit('rmqio sql: the broker is away')")
    delays = []
    for count in range(1, 5):
        lab.until(lambda: lab.status("a").restarts == count, "a failure")  # noqa: B023
        delays.append(int(lab.told[-1].removesuffix(" s").rpartition(" ")[2]))
        status = lab.status("a")
        assert (status.state, status.error) == ("restarting", "ended with status 1: rmqio sql: the broker is away")
        lab.now += delays[-1]
    assert delays == [1, 2, 4, 8]
    assert [Timing().delay(each) for each in (9, 10, 10_000)] == [256, 300, 300]


def test_a_job_that_has_run_long_starts_again_soon(lab: Lab) -> None:
    lab.write("a", FOREVER.format("up"))
    for count in range(1, 4):
        lab.until(lambda: lab.is_running("a", "up"), "the job")
        lab.now += lab.timing.steady
        os.kill(lab.status("a").pid or 0, signal.SIGKILL)
        lab.until(lambda: lab.status("a").restarts == count, "its end")  # noqa: B023
        assert lab.told[-1] == "a: ended by signal 9: up\nit starts again in 1 s"
        lab.now += 1


def test_a_job_that_is_done_does_not_run_again_until_its_file_changes(lab: Lab) -> None:
    lab.write("a", "print('once')")
    lab.until(lambda: lab.status("a").state == "done", "its end")
    lab.restart()
    lab.for_looks(10)
    lab.write("a", "not valid")
    lab.until(lambda: bool(lab.status("a").refused), "the refusal")
    lab.for_looks(5)
    lab.write("a", "print('once')")
    lab.until(lambda: not lab.status("a").refused, "the old text")
    lab.for_looks(10)
    assert lab.status("a").state == "done"
    assert lab.printed("a").splitlines().count("once") == 1
    lab.write("a", "print('twice')")
    lab.until(lambda: "twice" in lab.printed("a") and lab.status("a").state == "done", "the new text")


def test_a_job_stays_stopped_until_it_is_started_or_its_file_changes(lab: Lab) -> None:
    lab.write("a", FOREVER.format("one"))
    lab.until(lambda: lab.is_running("a", "one"), "the job")
    lab.state.request("stop", "a")
    lab.until(lambda: lab.status("a").state == "stopped", "its stop")
    lab.restart()
    lab.for_looks(10)
    assert lab.status("a").state == "stopped"
    lab.state.request("start", "a")
    lab.until(lambda: lab.is_running("a", "one"), "its start")
    lab.state.request("stop", "a")
    lab.state.request("stop", "b")
    lab.until(lambda: lab.status("a").state == "stopped", "its stop")
    lab.until(lambda: "there is no job b to stop" in lab.told, "the other request")
    lab.write("a", FOREVER.format("two"))
    lab.until(lambda: lab.is_running("a", "two"), "its start by a change")


def test_all_jobs_start_again_with_the_supervisor_with_the_text_that_then_is(lab: Lab) -> None:
    lab.write("a", FOREVER.format("a"))
    lab.write("b", FOREVER.format("b"))
    lab.write("c", FOREVER.format("c"))
    lab.until(lambda: all(lab.is_running(each, each) for each in "abc"), "all")
    lab.end()
    assert {each.state for each in lab.state.statuses()} == {"down"}
    lab.write("b", FOREVER.format("b2"))
    lab.write("c", "not valid")
    lab.kill()
    lab.until(lambda: lab.is_running("a", "a") and lab.is_running("b", "b2") and lab.is_running("c", "c"), "all")
    assert "the job runs with its old text" in lab.printed("c")


def test_what_an_earlier_supervisor_has_left_is_ended_first(lab: Lab) -> None:
    lab.write("a", FOREVER.format("one"))
    lab.until(lambda: lab.is_running("a", "one"), "the job")
    left, before = lab.status("a").pid, lab.supervisor
    lab.kill()
    lab.until(lambda: lab.is_running("a", "one") and lab.status("a").pid != left, "the new one")
    assert f"process {left} was left behind" in lab.printed("a")
    process = before._jobs["a"]._process
    assert process is not None
    lab.until(lambda: process.tick() == -signal.SIGINT, "its end")
    before._jobs["a"].close()


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, lambda *_: print('again', flush=True))
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
print('child', child.pid, flush=True)
while True:
    time.sleep(0.01)
"""


def test_a_job_that_does_not_end_is_killed_with_all_that_it_has_started(lab: Lab) -> None:
    lab.write("a", STUBBORN)
    lab.until(lambda: re.search(r"child \d+\n", lab.printed("a")) is not None, "the job")
    child = int(lab.printed("a").partition("child ")[2].split()[0])
    lab.interrupt()
    for count, patience in ((1, lab.timing.grace), (2, lab.timing.hurry)):
        lab.until(lambda: lab.printed("a").splitlines().count("again") == count, "an interrupt")  # noqa: B023
        lab.for_looks(10)
        assert lab.printed("a").splitlines().count("again") == count, "it has its time"
        lab.now += patience
    lab.end()
    assert lab.printed("a").splitlines().count("again") == 2
    assert "ended by signal 9" in lab.printed("a")
    status = Path(f"/proc/{child}/stat")
    assert not status.exists() or status.read_text().rpartition(") ")[2][0] == "Z"


def test_files_that_are_ignored_are_named_once(lab: Lab) -> None:
    (lab.folder / "a.SQL").write_text("")
    (lab.folder / "g/h").mkdir(parents=True)
    lab.for_looks(10)
    (lab.folder / "g/h/b.sql").write_text("")
    lab.until(lambda: any("b.sql: is ignored" in each for each in lab.told), "the second file")
    lab.for_looks(130)
    told = [each.partition(": is ignored")[0] for each in lab.told if ": is ignored" in each]
    assert told == [str(lab.folder / "a.SQL"), str(lab.folder / "g/h/b.sql")]


def test_jobs_go_on_while_the_folder_is_away(lab: Lab) -> None:
    lab.write("a", FOREVER.format("one"))
    lab.until(lambda: lab.is_running("a", "one"), "the job")
    pid = lab.status("a").pid
    away = lab.folder.with_name("away")
    lab.supervisor._watch._folder = away
    lab.for_looks(10)
    assert [each for each in lab.told if "cannot list" in each] == [
        f"cannot list {lab.folder}: No such file or directory; the jobs go on"
    ]
    assert (lab.status("a").state, lab.status("a").pid) == ("running", pid)


def test_a_lock_is_kept_by_the_process_that_inherits_it(tmp_path: Path) -> None:
    lock = Lock.take(tmp_path / "lock")
    assert lock is not None
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock.descriptor]
    ) as child:
        lock.close()
        assert Lock.take(tmp_path / "lock") is None
    assert child.returncode
    again = Lock.take(tmp_path / "lock")
    assert again is not None
    again.close()
