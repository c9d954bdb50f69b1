"""SET, statement sets, the session's time zone, and constants."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.cli.main import main
from rmqio.sql.catalog.settings import Settings, options_of
from rmqio.sql.errors import SqlError
from rmqio.sql.explain.plans import explain
from rmqio.sql.scripts.script import Script
from rmqio.sql.values import in_zone
from tests.unit.sql.evaluating import evaluate

TABLES = (
    "CREATE TABLE t (a BIGINT, b STRING, st TIMESTAMP_LTZ(3) METADATA FROM 'store_timestamp' VIRTUAL) "
    "WITH ('topic' = 't');\nCREATE TABLE x (a BIGINT) WITH ('topic' = 'x');\n"
)


def script_of(text: str) -> Script:
    script = Script()
    script.run(TABLES + text, "job.sql")
    return script


INVALID = [
    ("BEGIN STATEMENT SET; INSERT INTO x SELECT a FROM t", "the statement set does not end: END is missing",
     "BEGIN STATEMENT SET"),
    ("END", "no statement set is open: write BEGIN STATEMENT SET before END", "END"),
    ("BEGIN STATEMENT SET; RESET; END", "a statement set has only INSERT INTO: write END before other statements",
     "RESET"),
    ("BEGIN STATMENT SET", "unexpected STATMENT: expected STATEMENT: did you mean 'STATEMENT'?", "STATMENT"),
    ("SET 'table.local-time-zone' = 'Asia/Shanghia'",
     "'Asia/Shanghia' is not a time zone, such as Europe/Berlin or GMT+08:00: did you mean 'Asia/Shanghai'?",
     "'Asia/Shanghia'"),
    ("INSERT INTO x SELECT 1; SET 'table.local-time-zone' = 'Asia/Tokyo'",
     "the time zone applies to the whole job: SET it before the first INSERT INTO",
     "SET 'table.local-time-zone' = 'Asia/Tokyo'"),
    ("SET 'execution.savepoint.path' = 'x'",
     "the setting 'execution.savepoint.path' is not supported: a job continues with --checkpoint_dir, or on Flink with "
     "--savepoint_path", None),
    ("SET 'parallelism.default' = '0'", "parallelism.default is '0'; it must be a whole number of at least 1", "'0'"),
    ("SET 'execution.runtime-mode' = 'strem'",
     "execution.runtime-mode is 'strem': did you mean 'streaming'?", "'strem'"),
    ("SET 'table.exec.mini-batch.enabled' = 'false'",
     "table.exec.mini-batch.enabled is always true: it cannot be 'false'", "'false'"),
    ("SET 'table.exec.source.idle-timeout' = '0'",
     "table.exec.source.idle-timeout must be more than 0: a queue that is empty never waits forever", "'0'"),
    ("SET 'execution.checkpointing.interval' = 'often'", "'often' is not a time; it must be like '1 h'", "'often'"),
    ("SET 'parallelism.defalt' = '2'",
     "there is no setting 'parallelism.defalt': did you mean 'parallelism.default'?", None),
    ("RESET 'pipeline.nam'", "there is no setting 'pipeline.nam': did you mean 'pipeline.name'?", None),
    ("CREATE TABLE y (a INT) WITH ('topic' = 'y', 'filter.push-down' = 'sql')",
     "filter.push-down is 'sql': did you mean 'sql92'?", "'sql'"),
    ("CREATE TABLE y (a INT) WITH ('topic' = 'y', 'sink.delivery-guarantee' = 'exactly-once')",
     "sink.delivery-guarantee is 'exactly-once', which needs the option 'producerGroup': a group that nothing else "
     "writes with", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "marked"), INVALID, ids=[each[0] for each in INVALID])
def test_what_is_not_valid(text: str, message: str, marked: str | None) -> None:
    with pytest.raises(SqlError) as caught:
        script_of(f"{text};")
    assert caught.value.message == message
    assert caught.value.line == 3
    if marked is not None:
        shown, carets = caught.value.shown.splitlines()
        assert shown[carets.index("^") :].startswith(marked)
        assert carets.count("^") == len(marked)


def test_what_is() -> None:
    script = script_of(
        "SET 'pipeline.name' = 'my job'; SET 'parallelism.default' = '2'; SET 'execution.runtime-mode' = 'STREAMING';"
        "SET 'execution.checkpointing.interval' = '5 s'; SET 'table.exec.source.idle-timeout' = '30 s';"
        "SET 'table.exec.mini-batch.enabled' = 'true'; SET 'table.exec.mini-batch.allow-latency' = '1 s';"
        "EXECUTE STATEMENT SET BEGIN INSERT INTO x SELECT a FROM t; INSERT INTO x SELECT CASE WHEN a > 1 THEN 1 END "
        "FROM t; END; EXECUTE INSERT INTO x SELECT 1;"
    )
    assert len(script.sinks) == 3
    settings = Settings(0, "my job", "UTC", 2, "streaming", 5000, 30_000)
    assert script.settings == settings
    assert options_of(settings, "DirectRunner", [], ["t"]) == []
    assert options_of(settings, "SparkRunner", [], ["t"]) == [
        "--streaming", "--spark_app_name=my job", "--trigger_interval_ms=5000",
    ]  # fmt: skip
    assert options_of(settings, "FlinkRunner", ["--streaming", "--parallelism=4"], ["t"]) == [
        "--job_name=my job", "--checkpointing_interval=5000",
    ]  # fmt: skip
    script.run("RESET 'pipeline.name'; RESET 'execution.runtime-mode';")
    assert (script.settings.name, script.settings.mode) == ("", "automatic")


def test_a_job_in_batch_mode_must_end() -> None:
    batch = Settings(mode="batch")
    assert options_of(batch, "SparkRunner", [], []) == []
    with pytest.raises(SqlError, match="the read of t does not end: give --stop"):
        options_of(batch, "SparkRunner", [], ["t"])
    with pytest.raises(SqlError, match="--streaming says the opposite"):
        options_of(batch, "SparkRunner", ["--streaming"], [])


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("CAST(CAST('2024-01-01 00:00:00Z' AS TIMESTAMP_LTZ(3)) AS STRING)", "2024-01-01 01:00:00.000"),
        ("CAST(CAST('2024-07-01 00:00:00Z' AS TIMESTAMP_LTZ(3)) AS TIMESTAMP(3))", 1_719_799_200_000_000),
        ("CAST(TIMESTAMP '2024-01-01 00:00:00' AS TIMESTAMP_LTZ(3))", 1_704_063_600_000_000),
        ("CAST(TIMESTAMP '2024-03-31 02:30:00' AS TIMESTAMP_LTZ(3))", 1_711_848_600_000_000),  # not there: 03:30
        ("CAST(TIMESTAMP '2024-10-27 02:30:00' AS TIMESTAMP_LTZ(3))", 1_729_989_000_000_000),  # there twice: the first
        ("EXTRACT(HOUR FROM CAST('2024-07-01 22:00:00Z' AS TIMESTAMP_LTZ(3)))", 0),
        ("CAST(CAST('2024-07-01 22:00:00Z' AS TIMESTAMP_LTZ(3)) AS DATE)", 19_906),
        ("FROM_UNIXTIME(0)", "1970-01-01 01:00:00"),
    ],
)
def test_the_time_zone_of_the_session(expression: str, wanted: object) -> None:
    with in_zone("Europe/Berlin"):
        assert evaluate(expression) == wanted


def test_constants_are_computed_when_the_statement_is_planned() -> None:
    script = script_of(
        "SET 'table.local-time-zone' = 'Asia/Shanghai';"
        "EXPLAIN SELECT a + (1 + 2) * 3, UPPER('x') || b, RAND() + 1, IF(a > 0, 1 / 0, 2) FROM t WHERE 1 = 1 "
        "AND b LIKE LOWER('A%') AND st >= CAST(TIMESTAMP '2024-01-01 00:00:00' AS TIMESTAMP_LTZ(3)) + INTERVAL '1' DAY;"
    )
    assert explain(script.explained).splitlines() == [
        "Select",
        "│   a + 9 AS EXPR$0, 'X' || b AS EXPR$1, RAND() + 1.0 AS EXPR$2,",
        "│   CASE WHEN a > 0 THEN 1 / 0 ELSE 2 END AS EXPR$3",
        "│   where b LIKE 'a%'",
        "│   where st >= TIMESTAMP_LTZ '2024-01-01 16:00:00.000Z'",
        "└─ Read t (topic t, json), append-only",
        "       decodes a, b (2 of 2 columns)",
        "       metadata st",
        "       with --start=earliest, begins with what was stored at 2024-01-01 15:59:00 UTC",
    ]


def test_what_the_runner_does_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.sql"
    file.write_text(f"{TABLES} INSERT INTO x SELECT COUNT(*) FROM t GROUP BY b;")
    assert main(["sql", str(file), "--explain", "--runner=DirectRunner", "--stop=latest"]) == 0
    shown = capsys.readouterr().out
    assert "shuffles by b" in shown
    assert "On DirectRunner\n    one process, stage after stage" in shown
    assert "reads that end" in shown
    assert main(["sql", str(file), "--explain"]) == 0
    assert "On DirectRunner" not in capsys.readouterr().out
