"""The pipeline of examples/totals.yaml, by Beam YAML's own program, on a real broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("docstring_parser", reason="Beam YAML needs the extra 'yaml'")
pytest.importorskip("jinja2", reason="Beam YAML needs the extra 'yaml'")

from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue
from rmqio.runners import runner_path
from rmqio.yaml import PROVIDERS
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.waiting import at_most, until_found

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]
EXAMPLE = Path(__file__).parents[3] / "examples/totals.yaml"


def test_the_listing_is_the_one_that_the_example_shows() -> None:
    shown = EXAMPLE.read_text().partition("providers:\n")[2]
    assert re.sub(r"(?m)^  ", "", shown) == Path(PROVIDERS).read_text()


@pytest.mark.parametrize("runner", ["DirectRunner", "SparkRunner"])
def test_totals_of_a_topic(runner: str, lab: Lab, rocketmq: LocalRocketMQ, tmp_path: Path) -> None:
    if runner == "SparkRunner":
        pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
    names = [f"yaml-{kind}-{uuid.uuid4().hex[:10]}" for kind in ("orders", "totals", "letters")]
    for name in names:
        lab.broker.create_topic(name, queues=2)
    orders, totals, letters = names
    bodies = [json.dumps({"customer": f"c{n % 3}", "amount": n / 2}).encode() for n in range(60)]
    for number in range(2):
        found = [*bodies[number::2], *([b"{"] if number else [])]
        send_all(lab.broker.broker, MessageQueue(orders, lab.broker.name, number), [Message(each) for each in found])
    variables = {"name_server": rocketmq.name_server, "source_topic": orders, "sink_topic": totals, "letters": letters}
    job = EXAMPLE
    if runner == "SparkRunner":  # the listing of the package does the same as the block
        job = tmp_path / "job.yaml"
        shown = EXAMPLE.read_text().partition("providers:\n")[0]
        job.write_text(f"{shown}providers:\n  - include: {PROVIDERS}\n")
    flags = [f"--runner={runner_path(runner)}"] if runner != "DirectRunner" else []
    command = [
        sys.executable, "-m", "apache_beam.yaml.main", f"--yaml_pipeline_file={job}",
        f"--jinja_variables={json.dumps(variables)}", *flags,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(240), check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    wanted = [{"customer": f"c{key}", "total": sum(n / 2 for n in range(60) if n % 3 == key)} for key in range(3)]

    def rows() -> list[dict[str, Any]]:
        return [json.loads(each.body) for each in read_topic(lab.client, totals)]

    until_found(rows, wanted)
    assert sorted(rows(), key=lambda row: str(row["customer"])) == wanted
    assert {each.keys for each in read_topic(lab.client, totals)} == {("c0",), ("c1",), ("c2",)}
    (letter,) = (json.loads(each.body) for each in read_topic(lab.client, letters))
    assert letter["row"] == "{"
    assert f"{orders}/" in letter["reason"]
