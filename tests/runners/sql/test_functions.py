"""Functions, those in Python beside the SQL file too, and UNNEST give the same rows on all runners."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from tests.helpers.check import read_topic
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.waiting import at_most, until_found
from tests.runners.sql.test_sql import RUNNERS, Topics, command, rows_of, send, topics

__all__ = ["topics"]
pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

MODULE = """
from __future__ import annotations
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from {beside} import tidy

class Word(NamedTuple):
    word: str
    length: int

@dataclass
class Best:
    word: str | None = None

def clean(text: str, suffix: str | None = None) -> str:
    if "bad" in text:
        raise ValueError("no such text")
    return tidy(text) + (suffix or "")

def words(text: str) -> Iterator[Word]:
    for each in text.split():
        yield Word(each, len(each))

class Longest:
    def create_accumulator(self) -> Best:
        return Best()

    def accumulate(self, best: Best, word: str) -> None:
        if word == "worse":
            raise ValueError("no such word")
        best.word = max(word, best.word or "", key=lambda each: (len(each), each))

    def merge(self, best: Best, others) -> None:
        for each in others:
            if each.word is not None:
                self.accumulate(best, each.word)

    def get_value(self, best: Best) -> str | None:
        return best.word
"""

SCRIPT = """
CREATE FUNCTION clean AS '{module}.clean' LANGUAGE PYTHON;
CREATE FUNCTION words AS '{module}:words' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION longest AS '{module}.Longest' LANGUAGE PYTHON;
CREATE TABLE notes (id BIGINT, text STRING, tags ARRAY<STRING>, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH (
  'topic' = '{readings}', 'on-error' = 'dead-letter', 'dead-letter-topic' = '{devices}'
);
CREATE TABLE found (kind STRING, id BIGINT, word STRING, length BIGINT) WITH ('topic' = '{alarms}');
INSERT INTO found SELECT 'clean', id, clean(text, '!'), CAST(NULL AS BIGINT) FROM notes;
INSERT INTO found SELECT 'word', id, word, length FROM notes LEFT JOIN LATERAL TABLE(words(text)) ON TRUE;
INSERT INTO found SELECT 'tag', id, tag, i FROM notes, UNNEST(tags) WITH ORDINALITY AS u (tag, i);
INSERT INTO found
SELECT 'longest', MOD(id, 3), longest(word), COUNT(*) FROM notes, LATERAL TABLE(words(text)) GROUP BY MOD(id, 3);
INSERT INTO found
SELECT 'ends', MOD(id, 3), CONCAT_WS(' ', FIRST_VALUE(text), LAST_VALUE(CAST(id AS STRING))), FIRST_VALUE(id)
FROM notes GROUP BY MOD(id, 3);
INSERT INTO found SELECT 'any', id, PRINTF('%05d|%-4s|%+,.1f', id, text, id * 1000.26), CHAR_LENGTH(text)
FROM notes WHERE MOD(id, 7) = ANY (1, 3, NULL) AND MOD(id, 5) <> ALL (0, 4);
"""
REASONS = {
    "one bad": "function clean(text, '!'): ValueError: no such text",
    "worse": "function longest, an aggregate, has failed in accumulate: ValueError: no such word",
}
START = dt.datetime(2024, 2, 1)


@pytest.mark.parametrize("runner", RUNNERS)
def test_functions_beside_the_script(runner: str, topics: Topics, lab: Lab, tmp_path: Path) -> None:
    module = f"functions_{os.getpid()}"
    (tmp_path / f"{module}.py").write_text(MODULE.format(beside=f"{module}_beside"))
    (tmp_path / f"{module}_beside.py").write_text("def tidy(text: str) -> str:\n    return text.upper()\n")
    notes: list[dict[str, Any]] = [
        {
            "id": n,
            "ts": str(START + dt.timedelta(seconds=n * 37 % 60)),  # no two rows have the same
            "text": [f"w{n} {'x' * (n % 7)}", "one bad" if n % 8 == 1 else "worse", "", None][n % 4],
            "tags": [["a", None, "a"], [], None][n % 3],
        }
        for n in range(60)
    ]
    send(lab, topics.readings, notes)
    script = SCRIPT.replace("{module}", module)
    flags = [*command(script, topics, runner, tmp_path), "--stop=latest"]
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "rmqio", *flags],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        timeout=at_most(300),
    )
    assert done.returncode == 0, done.stderr
    wanted: list[tuple[Any, ...]] = []
    texts: dict[int, list[str]] = {}
    for note in notes:
        key, text, tags = note["id"], note["text"], note["tags"]
        if text is None or "bad" not in text:
            wanted.append(("clean", key, text if text is None else f"{text.upper()}!", None))
        split = (text or "").split()
        wanted += [("word", key, each, len(each)) for each in split] or [("word", key, None, None)]
        wanted += [("tag", key, each, i) for i, each in enumerate(tags or [], 1)]
        texts.setdefault(key % 3, []).extend(split if text != "worse" else [])
        if key % 7 in (1, 3) and key % 5 not in (0, 4):
            printf = f"{key:05d}|{'null' if text is None else text:<4}|{key * Decimal('1000.26'):+,.1f}"
            wanted.append(("any", key, printf, text if text is None else len(text)))
    for key, each in texts.items():
        wanted.append(("longest", key, max(each, key=lambda word: (len(word), word)), len(each)))
        group = sorted((note for note in notes if note["id"] % 3 == key), key=lambda note: note["ts"])
        first = next(note["text"] for note in group if note["text"] is not None)
        wanted.append(("ends", key, f"{first} {group[-1]['id']}", group[0]["id"]))
    until_found(lambda: [tuple(row.values()) for row in rows_of(lab, topics.alarms)], wanted)
    found = [tuple(row.values()) for row in rows_of(lab, topics.alarms)]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    ids = [each.get_property("UNIQ_KEY") for each in read_topic(lab.client, topics.alarms)]
    assert len(set(ids)) == len(ids) == len(wanted)
    letters = list(read_topic(lab.client, topics.devices))
    bad = sorted(note["text"] for note in notes if note["text"] in REASONS)
    assert sorted(json.loads(each.body)["text"] for each in letters) == bad
    for letter in letters:
        assert REASONS[json.loads(letter.body)["text"]] in " ".join(letter.properties.values())
