"""Exit statuses and what is said with them."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics

from rmqio import runners
from rmqio.errors import LocalError, RmqioError, TopicNotExist, TransportError
from rmqio.runners.errors import PipelineFailed
from rmqio.runners.program import count, failure_text, run_program
from tests.helpers.waiting import at_most


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """A program sets log levels, once for its life; here others come after it."""
    names = ("", "apache_beam.runners.common", "apache_beam.runners.worker.sdk_worker")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def raising(error: BaseException) -> Callable[[Any], Any]:
    def function(element: Any) -> Any:
        raise error

    return function


def topic_missing(element: Any) -> Any:
    raise TopicNotExist(17, "no route", "route of topic 'x'")


def counting(element: int) -> int:
    Metrics.counter("test", "seen").inc(element)
    return element


def run(build: Callable[[beam.Pipeline], Any], *, verbose: bool = False) -> int:
    return run_program(
        "job.py", runners.options([]), build, lambda result: f"{count(result, 'seen')} seen", verbose=verbose
    )


def test_success_prints_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda p: p | beam.Create([1, 2]) | beam.Map(counting)) == 0
    assert capsys.readouterr().out == "job.py: 3 seen\n"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (raising(TransportError("no answer")), "job.py: no answer\n"),
        (raising(LocalError("an illegal name")), "job.py: an illegal name\n"),
        (topic_missing, "job.py: route of topic 'x': code 17 TOPIC_NOT_EXIST: no route\n"),
    ],
)
def test_a_failure_in_a_worker_is_one_line(
    step: Callable[[Any], Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(lambda p: p | beam.Create([1]) | beam.Map(step)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == message


def test_verbose_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda p: p | beam.Create([1]) | beam.Map(topic_missing), verbose=True) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        run(lambda p: p | beam.Create([0]) | beam.Map(lambda x: 1 / x))


@pytest.mark.parametrize(
    ("build", "status", "message"),
    [
        (raising(LocalError("bad option")), 2, "bad option"),
        (lambda p: p | beam.Create([1]) | beam.Map(raising(KeyboardInterrupt())), 130, "interrupted"),
    ],
)
def test_other_ends_have_statuses_of_their_own(
    build: Callable[[Any], Any], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(build) == status
    assert capsys.readouterr().err == f"job.py: {message}\n"


def test_a_runner_that_is_not_there_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    options = runners.options(["--runner=nowhere.MyRunner"])
    assert run_program("job.py", options, lambda p: None, str) == 2
    assert capsys.readouterr().err == "job.py: No module named 'nowhere'\n"


class Result:
    """The result of a runner that works elsewhere."""

    def __init__(self, state: str, interrupt: bool = False) -> None:
        self.state, self.interrupt, self.cancelled = state, interrupt, False

    def wait_until_finish(self) -> str:
        if self.interrupt:
            raise KeyboardInterrupt
        return self.state

    def cancel(self) -> None:
        self.cancelled = True


@pytest.mark.parametrize(
    ("result", "status", "message"),
    [
        (Result("FAILED"), 1, "the pipeline ended in state FAILED"),
        (Result("CANCELLED"), 1, "the pipeline ended in state CANCELLED"),
        (Result("RUNNING", interrupt=True), 130, "interrupted"),
    ],
)
def test_a_job_elsewhere_that_does_not_end_well(
    result: Result, status: int, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beam.Pipeline, "run", lambda self: result)
    assert run(lambda p: None) == status
    assert capsys.readouterr().err == f"job.py: {message}\n"
    assert result.cancelled == result.interrupt


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RmqioError("plain"), "plain"),
        (RmqioError("two\n lines\n [while running 'Read/Process']"), "two lines"),
        (RmqioError("plain [while running 'Read/Process']"), "plain"),
        (RuntimeError("rmqio.errors.TopicNotExist: no such topic [while running 'Read']"), "no such topic"),
        (
            RuntimeError(
                "Pipeline job-1 failed in state FAILED: java.lang.RuntimeException: Error received from SDK harness:\n"
                "Traceback (most recent call last):\n  File x\n"
                "rmqio.errors.TransportError: first\n\nDuring handling\n"
                "rmqio.errors.RmqioError: last [while running 'ref_Write']\n\n\tat org.apache.beam.X\n"
            ),
            "last",
        ),
        (
            PipelineFailed(  # of Spark; Flink's is the same without the frame of rmqio
                "Select from f: rmqio.errors.SerdeError: in.csv, row 2: column a: 'x' is not a whole number\n"
                "Traceback (most recent call last):\n"
                '  File "<sql fragment>", line 11, in fragment\n'
                '  File "/lib/rmqio/sql/formats/delimited.py", line 139, in exact\n'
                "    raise RowFailure(reason_of(error), each.name) from None\n"
                "rmqio.sql.formats.base.RowFailure: column a: 'x' is not a whole number"
            ),
            "in.csv, row 2: column a: 'x' is not a whole number",
        ),
        (RuntimeError("Traceback\n  File x\nKeyError: 'a'\n\n"), "KeyError: 'a' (-v shows more)"),
        (
            RuntimeError(
                "Traceback\n  File x\npymysql.err.ProgrammingError: nan\n\nThe above exception\nTraceback\n  File y\n"
                "sqlalchemy.exc.ProgrammingError: (pymysql.err.ProgrammingError) nan can not be used with MySQL\n"
                "[SQL: INSERT]\n(Background on this error at: https://sqlalche.me/e/20/f405)\n [while running 'Write']"
            ),
            "sqlalchemy.exc.ProgrammingError: (pymysql.err.ProgrammingError) nan can not be used with MySQL"
            " (-v shows more)",
        ),
        (RuntimeError("Traceback\n  File x\nOSError\n\n\tat org.apache.beam.X\n"), "OSError (-v shows more)"),
        (RuntimeError(""), "RuntimeError (-v shows more)"),
    ],
)
def test_the_line_that_matters_is_found(error: Exception, text: str) -> None:
    assert failure_text(error) == text


def test_what_beam_logs_of_a_failing_job_and_raises_as_well_is_reported_once(capfd: pytest.CaptureFixture[str]) -> None:
    source = (
        "import logging\n"
        "from apache_beam.runners.portability import portable_runner\n"
        "from rmqio.runners.program import set_up_logging\n"
        "set_up_logging(False)\n"
        "exec(compile('logging.log(logging.ERROR, \"of the job\")', portable_runner.__file__, 'exec'))\n"
        "logging.error('of the program')\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", source], check=True, timeout=at_most(60))
    err = capfd.readouterr().err
    assert "of the program" in err
    assert "of the job" not in err
