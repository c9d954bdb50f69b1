"""A program of README, as it is printed, on each runner that the command line names."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.helpers.client.raw_send import stored
from tests.helpers.doc_blocks import BLOCKS, NAME_SERVER
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.waiting import at_most
from tests.integration.pipelines.test_province import ENGINE_TIMEOUT_S, RUNNERS

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_program_of_readme_runs_where_the_command_line_says(runner: str, lab: Lab, tmp_path: Path) -> None:
    if runner == "SparkRunner":
        pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
    topic = f"snippet-{uuid.uuid4().hex[:10]}"
    lab.broker.create_topic(topic, queues=1)
    (block,) = [each for each in BLOCKS if each.page == "README.md" and '"payments"' in each.code]
    code = NAME_SERVER.sub(lab.broker.name_server, block.code).replace('"payments"', f'"{topic}"')
    (tmp_path / "pipeline.py").write_text(code)
    command = [sys.executable, "pipeline.py", f"--runner={runner}"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=at_most(ENGINE_TIMEOUT_S), check=False
    )
    assert done.returncode == 0, done.stderr
    (found,) = stored(lab.client, topic, [b"paid"])
    assert (found.body, found.tags, found.keys) == (b"paid", "vip", ("o-1",))
