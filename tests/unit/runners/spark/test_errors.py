"""Errors of tasks and of Spark itself, as users see them."""

from __future__ import annotations

import functools

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.errors import RmqioError
from rmqio.model import MessageQueue
from rmqio.runners.spark.errors import TaskFailure, described, failure_in, without_java_frames
from rmqio.testing import InMemoryCluster
from rmqio.testing.cluster import find_cluster


def raised(error: BaseException) -> BaseException:
    """Returns the error with a traceback."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001
        return caught


def test_a_failure_is_found_in_what_spark_makes_of_it() -> None:
    failure = TaskFailure(raised(ValueError("bad value [while running 'Parse/Map(int)']")))
    spark = f"An exception was thrown from the Python worker:\nTraceback ...\nTaskFailure: {failure}\n\tat org.apache.X"
    found = failure_in(spark)
    assert found is not None
    lines = found.splitlines()
    assert lines[0] == "Parse/Map(int): ValueError: bad value"
    assert lines[-1] == "ValueError: bad value"
    assert not any("org.apache" in line for line in lines)
    assert failure_in("Job 7 cancelled") is None


def test_a_users_cause_is_reported_once() -> None:
    try:
        try:
            raise KeyError("k")
        except KeyError as cause:
            raise ValueError("v [while running 'Step']") from cause
    except ValueError as error:
        text = described(error)
    assert text.startswith("Step: ValueError: v\n")
    assert text.index("KeyError: 'k'") < text.index("direct cause of the following") < text.rindex("ValueError: v")
    assert text.endswith("ValueError: v")


def test_an_error_without_a_transform_is_reported_as_it_is() -> None:
    assert described(raised(OSError(28, "No space left on device"))).startswith("OSError: [Errno 28] No space left")


@pytest.mark.parametrize(
    ("java", "what"),
    [
        ("java.io.FileNotFoundException: /cp/offsets/.7.tmp (No space left on device)", "for /cp/offsets/.7.tmp"),
        ("java.io.IOException: No space left on device", "on a disk"),
    ],
)
def test_a_full_disk_is_one_line(java: str, what: str) -> None:
    error = RuntimeError(f"An error occurred while calling o9.start.\n: {java}\n\tat java.base/java.io.X.y(X.java:1)")
    assert str(without_java_frames(error, "Read")) == (
        f"there is no room left {what}: --checkpoint_dir, and Spark's own files in spark.local.dir, need room; a "
        "stream that is started again goes on from its last commit"
    )


def test_an_error_of_ours_that_comes_from_our_code_is_its_text() -> None:
    def of_a_user() -> None:
        InMemoryCluster("none").stored_queue(MessageQueue("t", "b", 1))

    texts = []
    for call in (of_a_user, functools.partial(find_cluster, "no such cluster")):
        try:
            call()
        except RmqioError as error:
            texts.append(str(TaskFailure(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))))
    assert ["Traceback" in each for each in texts] == [True, False]


def test_a_failure_of_sparks_own_is_reported_without_its_frames() -> None:
    java = RuntimeError(
        "An error occurred while calling o99.save.\n: org.apache.spark.SparkException: Job aborted: ExecutorLost 3\n"
        "Driver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)\n"
        "Caused by: java.lang.OutOfMemoryError: heap\n\tat java.base/Thread.run(Thread.java:840)\n\t... 12 more"
    )
    assert str(without_java_frames(java)) == (
        "Spark failed: An error occurred while calling o99.save.\n"
        ": org.apache.spark.SparkException: Job aborted: ExecutorLost 3\nCaused by: java.lang.OutOfMemoryError: heap"
    )
    assert str(without_java_frames(java, "Read > Join")).startswith("Spark failed in Read > Join: An error occurred")
    query = RuntimeError(
        "[STREAM_FAILED] Query terminated: no space left\n=== Streaming Query ===\nIdentifier: 7\n+- Plan"
    )
    assert str(without_java_frames(query)) == "Spark failed: [STREAM_FAILED] Query terminated: no space left"
    plain = ValueError("Join: a side input has 9 MiB")
    assert without_java_frames(plain, "Join") is plain
