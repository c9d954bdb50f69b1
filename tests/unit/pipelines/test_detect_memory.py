"""detect.py with 41 rules and a table of a million rows, on one core and within 1 GB."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="rules need the extra 'rules'")
pytest.importorskip("lark", reason="files of rules can hold conditions of SQL")
pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")

import pyarrow as pa
import pyarrow.parquet as pq

from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.programs import program

ROWS = 1_000_000
EVENTS = 10_000
LIMIT = 1 << 30
CGROUPS = Path("/sys/fs/cgroup/memory")


@contextlib.contextmanager
def memory_group() -> Iterator[Path | None]:
    """A group of processes that may take 1 GB, page cache included. None: this system lets nobody make one here."""
    group = CGROUPS / f"rmqio-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        group.rmdir()


def rules() -> list[dict[str, Any]]:
    """41 rules: on an event's own fields, on columns of the table, and on both."""
    made: list[dict[str, Any]] = []
    for number in range(41):
        code = {"field": "code", "is": "equals", "value": f"E{number:03}"}
        tier = {"field": "tier", "is": "equals", "value": ("gold", "tin")[number % 2]}
        text = {"field": "text", "is": "contains", "value": f"needle {number:03}"}
        condition: Any = ({"all": [code, tier]}, text, {"all": [text, tier]})[number % 3]
        made.append({"id": f"r{number:02}", "condition": condition})
    return made


def is_hit(number: int, event: dict[str, Any], tier: str | None) -> bool:
    """Whether a rule of `rules` matches, written once more."""
    is_tier = tier == ("gold", "tin")[number % 2]
    is_text = f"needle {number:03}" in event["text"]
    return (event["code"] == f"E{number:03}" and is_tier, is_text, is_text and is_tier)[number % 3]


def events() -> list[dict[str, Any]]:
    drawn = random.Random(41)
    return [
        {
            "n": n,
            "user": f"user-{drawn.randrange(ROWS * 11 // 10):010}",
            "code": f"E{drawn.randrange(400):03}",
            "text": f"{drawn.getrandbits(900):x} needle {drawn.randrange(2000):03}",
        }
        for n in range(EVENTS)
    ]


def tier_of(user: int) -> str:
    return ("gold", "silver", "tin")[user % 3]


def write_table(path: Path) -> None:
    schema = pa.schema([(name, pa.string()) for name in ("id", "tier", "name", "place")])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, ROWS, 100_000):
            numbers = range(start, start + 100_000)
            columns = [[f"user-{n:010}" for n in numbers], [tier_of(n) for n in numbers],
                       [f"the name of user {n}" for n in numbers], [f"place {n % 300}" for n in numbers]]  # fmt: skip
            writer.write_table(pa.table(columns, schema=schema))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_41_rules_and_a_million_rows_run_on_one_core_within_a_gigabyte(tmp_path: Path) -> None:
    write_table(tmp_path / "users.parquet")
    (tmp_path / "rules.json").write_text(json.dumps(rules()))
    given = events()
    with FakeBroker() as broker, memory_group() as group:
        for topic in ("events", "hits"):
            broker.cluster.create_topic(topic, 1)
        for event in given:
            broker.cluster.append("events", json.dumps(event).encode(), queue_id=0)
        flags = [f"--name_server={broker.name_server}", "--source_topic=events", "--sink_topic=hits", "--stop=latest"]
        flags += [f"--rules={tmp_path}/rules.json", f"--enrich={tmp_path}/users.parquet", "--enrich_key=user=id"]
        flags += [f"--enrich_cache_dir={tmp_path}/cache", "--runner=DirectRunner"]

        limits = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
        limits += ["prlimit", f"--data={LIMIT}"]  # without pages of mapped files
        command = [*limits, sys.executable, program("detect"), *flags]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            if group is not None:
                (group / "cgroup.procs").write_text(str(process.pid))
            assert process.stderr is not None
            errors = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        # a send that is tried again on a busy machine stores a copy with the same id
        stored = {each.message_id: each.body for each in broker.cluster.records("hits")}
        found = [json.loads(body) for body in stored.values()]
        limited = None if group is None else int((group / "memory.max_usage_in_bytes").read_text())
    print(errors)
    assert process.returncode == 0
    wanted = []
    for event in given:
        user = int(event["user"].removeprefix("user-"))
        tier = tier_of(user) if user < ROWS else None
        wanted += [(event["n"], f"r{number:02}", tier) for number in range(41) if is_hit(number, event, tier)]
    assert len(wanted) > 100
    assert sorted((hit["event"]["n"], hit["rule"], hit["event"]["tier"]) for hit in found) == sorted(wanted)
    print(f"peak {used.ru_maxrss >> 10} MB, {used.ru_utime + used.ru_stime:.1f} s of CPU, group: {limited}")
    assert used.ru_maxrss << 10 < LIMIT, "of the largest process, with the pages of the table that it has touched"
