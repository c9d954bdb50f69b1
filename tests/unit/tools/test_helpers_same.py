"""`tests.helpers.same`: jobs are noted, run again from what was noted, and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.cli.main import main
from tests.helpers.same.__main__ import differing, texts_of
from tests.helpers.same.corpus import load
from tests.helpers.same.program import answer
from tests.helpers.same.recording import Recording
from tests.helpers.transforms.reading import clean_cluster
from tests.unit.sql.running import put, rows, run

TEXT = """
CREATE TABLE t (a INT, b STRING) WITH ('topic' = 't');
CREATE TABLE names (b STRING, name STRING) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv');
CREATE TABLE sink (a BIGINT, b STRING) WITH ('topic' = 'sink');
INSERT INTO sink SELECT a, name FROM t JOIN names ON t.b = names.b WHERE a > 1;
INSERT INTO sink SELECT COUNT(*), 'n' FROM t;
INSERT INTO sink SELECT a, UPPER(b) FROM t;
"""


def test_a_job_that_was_noted_gives_its_rows_again_and_what_differs_is_told(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    file = tmp_path / "files/names.csv"
    file.write_text("x,Xaver\ny,Yvonne\n")
    recording = Recording(tmp_path / "corpus.jsonl")
    with clean_cluster() as cluster, recording.noting("tests/unit/sql/test_a.py::test_b[c]", tmp_path):
        for topic in ("t", "sink"):
            cluster.create_topic(topic, 2)
        put(cluster, "t", *({"a": n, "b": "xy"[n % 2]} for n in range(4)))
        run(cluster, TEXT.format(file))
        wanted = rows(cluster)
    file.unlink()
    recording.pytest_sessionfinish()
    (job,) = load(tmp_path / "corpus.jsonl")

    texts = texts_of(job, lambda arguments: answer(main, arguments))
    assert [*texts] == ["test_a-b-c--1.explain", "test_a-b-c--1.rows"]
    explain, written = texts.values()
    assert "Read names" in explain
    assert written.splitlines()[:2] == ["status 0", "rmqio sql: 7 rows written"]
    assert written.splitlines()[2:] == sorted(f'sink {{}} {{"a":{a},"b":"{b}"}}' for a, b in wanted)

    others = {**texts, "test_a-b-c--1.rows": written.replace("Yvonne", "Xaver")}
    assert [*differing(texts, texts)] == []
    (diff,) = differing(texts, others).values()
    assert '-sink {} {"a":3,"b":"Yvonne"}' in diff.splitlines()
