"""The text that is left of what Python, Beam and Flink make of one error in user code."""

from __future__ import annotations

import logging
import sys
import threading
import traceback

import apache_beam as beam
import pytest

from rmqio.runners import tracebacks
from rmqio.runners.errors import PipelineFailed
from rmqio.runners.flink import result
from rmqio.runners.flink.result import be_quiet_about_ctrl_c, failed, once, shortened

CORE = str(sys.modules[beam.Map.__module__].__file__)


def price(name: str) -> int:
    try:
        return {"tea": 3}[name]
    except KeyError as error:
        raise ValueError(f"no price for {name}") from error


def in_flink(trace: str) -> RuntimeError:
    return RuntimeError(
        f"Pipeline BeamApp-x failed in state FAILED: java.lang.RuntimeException: Error received from SDK harness for "
        f"instruction 3: {trace}\n\tat org.apache.beam.runners.Fn(Fn.java:7)\nCaused by: java.lang.Exception"
    )


FRAMES = f'''Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1512, in apache_beam.runners.common.DoFnRunner.process
  File "{CORE}", line 2128, in <lambda>
    wrapper = lambda x: [fn(x)]
                         ^^^^^
  File "/home/user/prices.py", line 12, in <lambda>
    prices | beam.Map(lambda price: 1 / price)
                                    ~~^~~~~~~
ZeroDivisionError: division by zero'''
BEAMS = f'''{FRAMES}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "{CORE.replace("transforms/core", "runners/worker/sdk_worker")}", line 310, in _execute
    response = task()
               ^^^^^^
{FRAMES.partition(chr(10))[2]} [while running 'Divide']
'''


def test_an_error_is_named_with_its_step_and_the_users_frames() -> None:
    error = failed(in_flink(BEAMS))
    assert isinstance(error, PipelineFailed)
    assert str(error).splitlines() == [
        "Divide: ZeroDivisionError: division by zero",
        "Traceback (most recent call last):",
        '  File "/home/user/prices.py", line 12, in <lambda>',
        "    prices | beam.Map(lambda price: 1 / price)",
        "                                    ~~^~~~~~~",
        "ZeroDivisionError: division by zero",
    ]


def test_a_cause_stays() -> None:
    with pytest.raises(ValueError, match="no price") as raised:
        price("coffee")
    text = shortened("".join(traceback.format_exception(raised.value)))
    assert text.startswith("ValueError: no price for coffee\nTraceback")
    assert "KeyError: 'coffee'\n\nThe above exception was the direct cause of the following exception:\n\n" in text


def test_an_error_of_ours_says_it_all() -> None:
    frame = f'File "{tracebacks.__file__}", line 1, in x'
    trace = f"Traceback (most recent call last):\n  {frame}\nrmqio.errors.LocalError: gone"
    assert shortened(trace) == "rmqio.errors.LocalError: gone"


def test_where_no_user_code_failed_all_frames_stay() -> None:
    trace = f'Traceback (most recent call last):\n  File "{CORE}", line 1, in x\nTypeError: an integer is required'
    assert shortened(trace) == f"TypeError: an integer is required\n{trace}"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (
            "Failed to rollback to checkpoint/savepoint file:/c/chk-5. Cannot map checkpoint/savepoint state for "
            "operator 20ba6b65f97481d5570070de90e4e791 to the new program, because the operator is not available in "
            "the new program. If you want to allow to skip this, you can set the --allowNonRestoredState option on the "
            "CLI.",
            " file:/c/chk-5",
        ),
        ("There is no operator for the state 20ba6b65f97481d5570070de90e4e791", ""),
    ],
)
def test_state_of_a_step_that_is_gone_is_one_line_with_our_flag(text: str, where: str) -> None:
    found = str(failed(RuntimeError(f"failed in state FAILED: java.lang.IllegalStateException: {text}\n\tat a.b.C(D)")))
    assert found.startswith(f"the checkpoint or savepoint{where} has the state of a step that this pipeline lacks ")
    assert "(Flink's operator 20ba6b65f97481d5570070de90e4e791): give steps with state the labels" in found
    assert "--allow_non_restored_state drops" in found
    assert "\n" not in found


def test_another_error_of_flink_is_left_as_it_is() -> None:
    error = RuntimeError("Pipeline BeamApp-x failed in state FAILED: java.lang.IllegalStateException: no")
    assert failed(error) is error


@pytest.mark.parametrize("is_stream", [True, False])
def test_workers_say_it_once(
    is_stream: bool, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("common", "worker.sdk_worker"):
        caplog.set_level(logging.WARNING, f"apache_beam.runners.{name}")  # another test may have chosen another level
    with once(is_stream=is_stream):
        try:
            price("coffee")
        except ValueError:
            logging.getLogger("apache_beam.runners.common").exception("no price for coffee [while running 'Prices']")
        print(BEAMS, file=sys.stderr)
        print("mine", file=sys.stderr)
        worker = logging.getLogger("apache_beam.runners.worker.sdk_worker")
        worker.error("Error processing instruction %s. Original traceback is\n%s\n", "3", BEAMS)
        worker.warning("something else")
    assert capsys.readouterr().err == "mine\n"
    said = [record.getMessage() for record in caplog.records]
    assert said.pop() == "something else"
    assert [text.splitlines()[0] for text in said] == (
        ["a bundle failed: Divide: ZeroDivisionError: division by zero"] if is_stream else []
    )


def test_ctrl_c_hides_that_the_job_was_cancelled_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam's thread of job messages can report it after the pipeline has ended."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    root = logging.getLogger()
    for logger in (root, result._DATA, result._WORKER):
        monkeypatch.setattr(logger, "filters", [])  # without those of other tests
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    be_quiet_about_ctrl_c()
    message = "Error processing instruction %s. Original traceback is\n%s\n"
    lost, failed_too = (
        logging.makeLogRecord({"msg": message, "args": ("4", f"Traceback ...\n{end}\n")})
        for end in ("RuntimeError: Channel closed prematurely.", "ValueError: no price")
    )
    assert not result._WORKER.filter(lost)
    assert result._WORKER.filter(failed_too)
    said = [
        (logging.ERROR, "portable_runner", "JobCancellationException: Job was cancelled."),
        (logging.WARNING, "portable_runner", "a warning of the job"),
        (logging.ERROR, "program", "an error of the program"),
    ]
    records = [logging.makeLogRecord({"levelno": level, "module": module, "msg": text}) for level, module, text in said]
    assert [record.msg for record in records if root.filter(record)] == [
        "a warning of the job",
        "an error of the program",
    ]
