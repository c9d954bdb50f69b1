"""A program of docs/migrate with windows, as it is printed, without an end: a file, on a runner with streams.

tests/unit/pipelines/test_migrate.py runs those that the Direct runner takes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.model import Message
from tests.helpers.client.raw_send import read_to, records_of, send_all
from tests.helpers.doc_blocks import program_with
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.waiting import at_most, runs, until

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]


def test_the_windows_of_a_program_close_while_it_runs(lab: Lab, tmp_path: Path) -> None:
    suffix = uuid.uuid4().hex[:8]
    (orders,), (provinces,) = (lab.topic(0, name=f"{name}-{suffix}") for name in ("orders", "provinces"))
    code = program_with("rocketmq-streams", 'consumer_group="totals"', lab.broker.name_server)
    for name in ("orders", "provinces", "totals"):
        code = code.replace(f'"{name}"', f'"{name}-{suffix}"')
    path, log = tmp_path / "program.py", tmp_path / "log"
    path.write_text(code)
    with log.open("w") as file:
        program = subprocess.Popen(
            [sys.executable, str(path), "--runner=SparkRunner", "--streaming"],
            env={**os.environ, "NAMESRV_ADDR": lab.broker.name_server},
            stdout=file,
            stderr=file,
        )
    found: list[Any] = []

    def is_there() -> bool:
        send_all(lab.broker.broker, orders, [Message(b'{"id": "k", "amount": 1.5}')])
        end = lab.client.max_offset(provinces)
        found[:] = [json.loads(each.body) for each in records_of(read_to(lab.client, provinces, 0, end))] if end else []
        return bool(found)

    try:
        # It starts at the newest message: sent again and again.
        until(
            is_there,
            "the total of a window",
            alive=[runs(program, log.read_text)],
            details=log.read_text,
            still_s=300,
        )
        program.send_signal(signal.SIGINT)
        program.wait(at_most(120))
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
    assert {each["id"] for each in found} == {"k"}
    assert all(each["total"] >= 1.5 and each["total"] % 1.5 == 0 for each in found)
