"""`Audit` counts the same on all runners, and `rmqio audit` names the hop of each fault."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.model import MessageQueue
from rmqio.pipelines.check import read_topic
from rmqio.runners.capabilities import Mode
from tests.helpers.command_line import Tool
from tests.helpers.ledgers.ledger import Lab, wait_until
from tests.helpers.pipelines.auditing import BAD, DOUBLED, DROPPED, SLOW_QUEUE, SLOW_S

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parents[1] / "helpers/pipelines/auditing.py"
FLAGS = {
    Mode.DIRECT: "DirectRunner",
    Mode.SPARK: "SparkRunner",
    Mode.SPARK_STREAMING: "SparkRunner --streaming",
    Mode.FLINK: "FlinkRunner",
}
RUNNERS = [pytest.param(flags, id=flags, marks=pytest.mark.shows(mode)) for mode, flags in FLAGS.items()]
COUNTS = (5_000, 300)


@pytest.fixture(scope="module")
def source(lab: Lab) -> str:
    """A topic with two queues; in the first, offsets are of two blocks."""
    name = f"audit-{uuid.uuid4().hex[:10]}"
    lab.broker.create_topic(name, queues=len(COUNTS))
    for number, count in enumerate(COUNTS):
        queue = MessageQueue(name, lab.broker.name, number)
        lab.send(queue, count, make=lambda n, number=number: {"keys": (f"{number}-{n}",)})  # type: ignore[misc]
    return name


@pytest.mark.parametrize("runner", RUNNERS)
def test_each_fault_is_named_with_its_hop(
    runner: str, source: str, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sink, dead, hops = (f"{source}-{kind}-{uuid.uuid4().hex[:6]}" for kind in ("sink", "dead", "hops"))
    for name in (sink, dead):
        lab.broker.create_topic(name, queues=2)
    compacted = {"cleanup.policy": "COMPACTION"} if runner == "DirectRunner" else {}  # as good as any other topic
    lab.broker.create_topic(hops, queues=2, attributes=compacted)
    flags = f"--runner={runner}".split()
    flags += [f"--checkpoint_dir={tmp_path}/checkpoint"] if "streaming" in runner else []
    command = [sys.executable, str(PROGRAM), source, sink, dead, hops, lab.broker.name_server, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    wanted = sum(COUNTS) - len(DROPPED)  # one more is doubled, and one a dead letter
    wait_until(lambda: len([*read_topic(lab.client, sink)]) >= wanted, "all messages", timeout_s=60)
    rmqio = Tool(lab.broker.name_server, capsys)
    topics = ["--from-topic", source, "--to-topic", sink, "--dead-letter-topic", dead, "--audit-topic", hops]
    page = tmp_path / "audit.html"
    report = rmqio.json("audit", *topics, "--by", "keys", "--html", str(page), status=1)
    assert report["wrong"] == {"lost": len(DROPPED), "doubled": 1}
    assert (report["sent"], report["in_dead_letters"], report["foreign"]) == (sum(COUNTS), 1, 0)
    faults = {
        (each["after"][0], each["before"], kind, int(at["queue"].rpartition(":")[2]), at["offset"])
        for each in report["faults"]
        for kind in ("lost", "doubled")
        for at in each[f"{kind}_messages"]
    }
    assert faults == {
        *(("read", "parsed", "lost", *place) for place in DROPPED),
        ("read", "parsed", "lost", *BAD),  # it left for the dead letters there
        ("parsed", "doubled", "doubled", *DOUBLED),
    }
    assert all(
        each["lost"] + each["doubled"] == len(each["lost_messages"]) + len(each["doubled_messages"])
        for each in report["faults"]
    )
    counts = {hop["hop"]: hop["count"] for hop in report["hops"] if hop["hop"]}
    assert counts == {"read": sum(COUNTS), "parsed": wanted - 1, "doubled": wanted}
    slow = next(hop for hop in report["hops"] if hop["hop"] == "doubled")
    assert slow["max_block_delay_ms"] >= SLOW_S * 1000 - 1, f"queue {SLOW_QUEUE} is held up there"
    assert {each["where"] for each in report["messages"]["lost"]} == {"between 'read' and 'parsed'"}
    assert {(each["keys"][0]) for each in report["messages"]["lost"]} == {f"{q}-{n}" for q, n in DROPPED}
    assert "between &#x27;parsed&#x27; and &#x27;doubled&#x27;" in page.read_text()
    by_place: Any = rmqio.json("audit", *topics, status=1)
    found = by_place["by"], by_place["lost"], by_place["doubled"], by_place["foreign"]
    assert found == ("place", len(DROPPED), 1, 0), "the copy has an id of its own"
