"""The command line of a file of statements."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.cli.main import main
from tests.unit.sql.job_support import file

__all__ = ["file"]


def test_explain_in_a_file_does_not_keep_it_from_running(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f"{file.read_text()} EXPLAIN SELECT a FROM t;")
    assert main(["sql", str(file), "--check"]) == 0
    assert capsys.readouterr().out == f"{file}: valid, 1 INSERT INTO\n"
    assert main(["sql", str(file), "--name_server=127.0.0.1:1", "--nonsense=1"]) == 2  # so it goes on to the run
    assert "Select" in capsys.readouterr().out


def test_check_says_that_a_file_is_valid(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(file), "--check"]) == 0
    assert capsys.readouterr().out == f"{file}: valid, 1 INSERT INTO\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--checkpoint_dir=/c", "--checkpoint_dir has no effect: this runner keeps none"),
        ("--runner=Direct --checkpoint_dir=/c", "--checkpoint_dir has no effect: this runner keeps none"),
        ("--runner=Spark --stop=latest --checkpoint_dir=/c", "--checkpoint_dir has no effect without --streaming"),
        ("--runner=Spark --stop=latest --drain", "--drain has no effect without --streaming"),
        ("--stop=latest", ""),
    ],
)
def test_check_says_which_options_have_no_effect(
    arguments: str, said: str, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["sql", str(file), "--check", "--name_server=127.0.0.1:1", *arguments.split()]) == 0
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)


KEYED = "CREATE TABLE k (b STRING NOT NULL, n BIGINT, PRIMARY KEY (b) NOT ENFORCED) WITH ('topic' = 'k');"
GROUPED = f"{KEYED} INSERT INTO k SELECT COALESCE(b, ''), COUNT(*) FROM t GROUP BY COALESCE(b, '')"


def test_explain_says_that_each_version_of_a_row_counts(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = "each version of a row counts: it is no upsert table"
    assert main(["sql", str(file), "--explain"]) == 0
    assert note not in capsys.readouterr().out
    file.write_text(f"{file.read_text()} {KEYED} INSERT INTO sink SELECT CAST(SUM(n) AS INT), b FROM k GROUP BY b;")
    assert main(["sql", str(file), "--explain"]) == 0
    assert note in capsys.readouterr().out


@pytest.mark.parametrize(
    ("statement", "flags", "message"),
    [
        (GROUPED, [], ""),
        (GROUPED, ["--runner=SparkRunner", "--streaming", "--checkpoint_dir=/tmp/none-such"], ""),
        (GROUPED, ["--runner=DirectRunner", "--stop=latest"], ""),
        (GROUPED, ["--runner=DirectRunner"], "cannot run this pipeline"),
        (GROUPED.replace("(b) NOT ENF", "(n) NOT ENF"), [], "job.sql:4:161: INSERT INTO k: GROUP BY without"),
        (GROUPED.replace("(b) NOT ENF", "(n) NOT ENF"), ["--stop=latest"], ""),
        (GROUPED, ["--runner=DirectRunner", "--stop=latest", "--nonsense=1"], "unknown argument"),
    ],
)  # fmt: skip
def test_check_plans_as_the_run_would(
    statement: str, flags: list[str], message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(f"{file.read_text()}{statement};")
    if "SparkRunner" in str(flags):
        pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
    assert main(["sql", str(file), "--check", *flags]) == (2 if message else 0)
    shown = capsys.readouterr()
    assert message in shown.err
    assert ("valid, 2 INSERT INTO" in shown.out) == (not message)


def test_explain_shows_the_plan(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(file), "--explain"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Insert into sink (topic sink, json)")
    assert "where a > 1" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELEC 1", "job.sql:1:1: unexpected SELEC"),
        ("", "there is nothing to do: no INSERT INTO"),
        ("-- nothing\n", "there is nothing to do: no INSERT INTO"),
    ],
)
def test_what_is_wrong_is_said_once(text: str, message: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(text)
    assert main(["sql", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rmqio sql: ")
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("'pasword' = 'hunter2', 'table-name' = 'c'", "'pasword'"),
        ("'password' = 'hunter2' 'table-name' = 'c'", "unexpected 'table-name'"),
        ("'password' 'hunter2', 'table-name' = 'c'", "unexpected '***'"),
        ("'password' = 'hunter2', 'password_env' = 'X', 'table-name' = 'c'", "both say the password"),
        ("'password_env' = 'hunter2!', 'table-name' = 'c'", "'password_env' is not the name of"),
    ],
)
def test_no_error_shows_a_password(options: str, message: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f"CREATE TABLE c (a INT) WITH ('connector' = 'jdbc', 'url' = 'sqlite:///x', {options});")
    assert main(["sql", str(file), "--check"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "hunter2" not in error


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(tmp_path / "none.sql")]) == 2
    (tmp_path / "bad.sql").write_bytes(b"SELECT '\xff'")
    assert main(["sql", str(tmp_path / "bad.sql")]) == 2
    error = capsys.readouterr().err
    assert "cannot read" in error
    assert "bad.sql is not UTF-8: byte 8 is not" in error


def test_the_text_of_a_job_that_is_no_text_has_the_name_of_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The supervisor of a folder gives the text that it has read in a file of its own."""
    (tmp_path / "next.sql").write_bytes(b"SELECT '\xff'")
    assert main(["sql", "jobs/clicks.sql", f"--text_of={tmp_path / 'next.sql'}"]) == 2
    assert "jobs/clicks.sql is not UTF-8: byte 8 is not" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--nonsense=1", "unknown argument '--nonsense'"),
        ("b.sql", "unknown argument 'b.sql' (see rmqio sql --help)"),
        ("--check b.sql", "unknown argument 'b.sql' (see rmqio sql --help)"),
        ("--streaming b.sql", "unknown argument 'b.sql'"),
        ("--checkpoint_dir", "argument --checkpoint_dir: expected one argument (see rmqio sql --help)"),
        ("--check --parallelism=x", "argument --parallelism: invalid int value: 'x'"),
        ("--explain --parallelism=x", "argument --parallelism: invalid int value: 'x'"),
    ],
)
def test_an_argument_that_beam_does_not_take_is_refused(
    arguments: str, message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", str(file), "--name_server=127.0.0.1:1", *arguments.split()]) == 2
    assert capsys.readouterr() == ("", f"rmqio sql: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-e SHOW --on-error null", "unknown argument '--on-error'"),
        ("--on-error null job.sql", "unknown argument '--on-error'"),
        ("--on-error null", "unknown argument '--on-error'"),
    ],
)
def test_a_word_behind_an_option_is_taken_for_the_file(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", *arguments.split()]) == 2
    assert capsys.readouterr() == ("", f"rmqio sql: {message}\n")
