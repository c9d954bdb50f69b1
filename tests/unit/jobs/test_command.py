"""`rmqio sql --jobs` and its commands, as programs."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.cli.main import main
from rmqio.jobs.state import StateFolder
from tests.helpers.servers.jobs import Job, started

TOPICS = """
CREATE TABLE o (id BIGINT, who STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('topic' = 'o');
CREATE TABLE x (id BIGINT, who STRING) WITH ('topic' = 'x');
"""
WINDOW = "INSERT INTO x SELECT SUM(id), who FROM o GROUP BY who, TUMBLE(ts, INTERVAL '1' MINUTE);"


def run(*argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(["sql", *argv])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_folder_is_run_until_a_signal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "jobs"
    (folder / "g").mkdir(parents=True)
    (folder / "wrong.sql").write_text(f"{TOPICS}INSERT INTO x SELECT idd, who FROM o;")
    (folder / "g" / "away.sql").write_text(f"{TOPICS}INSERT INTO x SELECT id, who FROM o;")
    state, jobs = StateFolder(folder / ".rmqio"), f"--jobs={folder}"
    flags = [f"--jobs={folder}", "--name_server=127.0.0.1:1", "--start=earliest"]
    with started(Job([sys.executable, "-m", "rmqio", "sql", *flags], tmp_path)) as job:
        job.wait_until(lambda: sum(each.restarts or each.state == "refused" for each in state.statuses()) == 2, "both")
        assert run(*flags, capsys=capsys)[0] == 2
        status, out, err = run("ps", jobs, "--json", capsys=capsys)
        found = {each["name"]: each for each in map(json.loads, out.splitlines())}
        assert (status, err, sorted(found)) == (0, "", ["g/away", "wrong"])
        assert "no name server answers: cannot connect to 127.0.0.1:1" in found["g/away"]["error"]
        assert found["wrong"]["refused"].splitlines()[0] == (
            f"{folder}/wrong.sql:4:22: there is no column idd: did you mean 'id'?"
        )
        assert run("stop", "g/away", jobs, capsys=capsys)[:2] == (0, "g/away: stopped\n")
        assert "g/away  stopped" in run("ps", jobs, capsys=capsys)[1]
        assert job.end(signal.SIGTERM) == 0
        said = [line.split("Z rmqio sql: ")[-1] for line in job.log.read_text().splitlines() if "all jobs are" in line]
        assert said == ["all jobs are stopped"]  # they were before
    status, out, err = run("ps", jobs, capsys=capsys)
    assert (status, err) == (0, "rmqio sql: no supervisor runs: this is how the last one has left them\n")
    assert "\n  refused: " in out
    assert b"there is no column idd" in (folder / ".rmqio/wrong/log").read_bytes()
    status, out, err = run("stop", "g/away", jobs, capsys=capsys)
    assert err == f"rmqio sql: no supervisor runs for {state.path}: rmqio sql --jobs {folder}\n"


def test_a_folder_whose_jobs_nobody_has_run_has_no_last_supervisor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run("ps", f"--jobs={tmp_path}", capsys=capsys)
    assert (status, err) == (0, f"rmqio sql: no supervisor runs for {tmp_path}, and none has run a job\n")


def test_a_folder_is_checked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.sql").write_text(f"{TOPICS}INSERT INTO x SELECT id, who FROM o;")
    (tmp_path / "b.sql").write_text("SELEC")
    (tmp_path / "c d.sql").write_text("SELEC")
    (tmp_path / "d.SQL").write_text("SELEC")
    assert main(["sql", f"--jobs={tmp_path}", "--check"]) == 2
    out, err = capfd.readouterr()
    assert f"rmqio sql: {tmp_path}/d.SQL: is ignored: the name of a job's file ends in .sql" in err
    assert out == f"{tmp_path}/a.sql: valid, 1 INSERT INTO\n"
    assert f"{tmp_path}/b.sql:1:1: " in err
    assert "c d.sql: the name of a job is made of" in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--jobs={}", "a.sql"], "--jobs runs the files of a folder: omit 'a.sql'"),
        (["--jobs={}", "--explain"], "--explain cannot be combined with --jobs: give a file"),
        (
            ["--jobs={}", "--runner=SparkRunner", "--streaming", "--checkpoint-dir=/x"],
            "each job has a checkpoint of its own, in --state_dir: omit --checkpoint_dir",
        ),
        (["--jobs={}", "--savepoint_path=/x"], "--savepoint_path is that of one job: omit it with --jobs"),
        (["--jobs={}", "--no_such_flag=1"], "unknown argument '--no_such_flag'"),
        (["--jobs={}", "--parallelism=x"], "argument --parallelism: invalid int value: 'x'"),
        (["--jobs={}/away"], "cannot list {}/away: No such file or directory"),
        (["ps", "--jobs={}/away"], "cannot list {}/away: No such file or directory"),
        (["logs", "a", "--jobs={}"], "there is no job 'a'; there is none"),
    ],
)
def test_wrong_usage(argv: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(*(each.format(tmp_path) for each in argv), capsys=capsys)
    assert (status, out, err) == (2, "", f"rmqio sql: {said.format(tmp_path)}\n")


@pytest.mark.parametrize("word", ["ps", "stop", "start", "logs"])
def test_a_file_with_the_name_of_a_command_needs_its_folder(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(word).write_text(f"{TOPICS}INSERT INTO x SELECT id, who FROM o;")
    assert run(f"./{word}", "--check", capsys=capsys)[:2] == (0, f"./{word}: valid, 1 INSERT INTO\n")
    status, _, err = run(word, capsys=capsys)
    assert status == 2
    assert "--jobs" in err
    assert "missing" in err


GROUPED = TOPICS.replace("'topic' = 'o'", "'topic' = 'o', 'consumerGroup' = 'g'")
COPY = "INSERT INTO x SELECT id, who FROM o;"
SPARK = ["--runner=SparkRunner", "--streaming", "--has_state"]
FLINK = ["--runner=FlinkRunner", "--streaming", "--has_state"]
DIRECT = ["--is_running"]
UNCHANGED = "-- the same"


@pytest.mark.parametrize(
    ("flags", "before", "now", "said"),
    [
        (SPARK, TOPICS + WINDOW, TOPICS + WINDOW.replace(" GROUP", " WHERE id > 5 GROUP"), ""),
        (SPARK, TOPICS + WINDOW, f"-- a comment\n{TOPICS}{WINDOW}", UNCHANGED),
        (SPARK, TOPICS + COPY + WINDOW, TOPICS + WINDOW + COPY, UNCHANGED),
        (FLINK, TOPICS + COPY + WINDOW, f"-- a comment\n{TOPICS}{COPY}{WINDOW}", UNCHANGED),
        (
            FLINK,
            TOPICS + COPY + WINDOW,
            TOPICS + WINDOW + COPY,
            "it cannot continue from its checkpoint: the INSERT INTO statements are in another order, by which Flink "
            "finds their state. Give",
        ),
        (
            SPARK,
            TOPICS + WINDOW,
            TOPICS + WINDOW.replace("'1' MINUTE", "'2' MINUTE"),
            "it cannot continue from its checkpoint: INSERT INTO x: group: window was tumble of 1 min by "
            "o.ts, and is tumble of 2 min by o.ts. Give the new query a file of its own, or start over: "
            "rmqio sql stop, remove the checkpoint, rmqio sql start\n",
        ),
        (SPARK[:-1], TOPICS + WINDOW, TOPICS + WINDOW.replace("'1' MINUTE", "'2' MINUTE"), ""),  # it has no state yet
        (DIRECT, GROUPED + COPY, f"{GROUPED} /* again */ {COPY}", UNCHANGED),
        (DIRECT, GROUPED + COPY, f"{GROUPED} SET 'table.exec.source.idle-timeout' = '5 s'; {COPY}", ""),
        (DIRECT, GROUPED + COPY, GROUPED + COPY.replace("id,", "id + 1,"), ""),
        ([], TOPICS + COPY, TOPICS + COPY.replace("id,", "id + 1,"), ""),  # it does not run
        (
            DIRECT,
            TOPICS + COPY,
            TOPICS + COPY.replace("id,", "id + 1,"),
            "it cannot go on from where the old text is, because its runner keeps no checkpoint: the table o has no "
            "'consumerGroup', whose offsets say how far it was read. Wait until the job is done, run it on Spark or "
            "Flink with --streaming, or start it anew: rmqio sql stop, rmqio sql start\n",
        ),
        (DIRECT, GROUPED + COPY, GROUPED.replace("'g'", "'h'") + COPY, "the group of o was g, and is h. Wait"),
        (
            [*DIRECT, "--stop=latest"],
            GROUPED + COPY,
            GROUPED + WINDOW,
            "INSERT INTO x keeps rows (aggregate), which end with it. Wait",
        ),
        (
            [*DIRECT, "--stop=latest", "--runner=SparkRunner"],
            GROUPED + COPY,
            GROUPED + COPY.replace("id,", "id + 1,"),
            "without --streaming, its offsets are committed when it is done, and not before. Wait",
        ),
    ],
)
def test_a_check_compares_with_the_text_that_it_replaces(
    flags: list[str], before: str, now: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--runner=SparkRunner" in flags:
        pytest.importorskip("pyspark", reason="a check plans as the run, which needs the extra 'spark'")
    (tmp_path / "old.sql").write_text(before)
    (tmp_path / "new.sql").write_text(now)
    argv = ["job.sql", f"--text_of={tmp_path}/new.sql", "--check", f"--replaces={tmp_path}/old.sql", *flags]
    status, out, err = run(*argv, capsys=capsys)
    if said in ("", UNCHANGED):
        assert (status, err) == (3 if said else 0, "")
        assert out.startswith("job.sql: valid, ")
    else:
        assert (status, out) == (2, "")
        assert said in err
