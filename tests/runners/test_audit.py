"""`Audit` counts the same on all runners, and `rmqio audit` names the hop of each fault."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.audit.checking import Request, audit
from rmqio.model import MessageQueue
from rmqio.runners.capabilities import Mode
from tests.helpers.check import read_topic
from tests.helpers.command_line import Tool
from tests.helpers.ledgers.delivery import FLINK, SPARK_STREAMING, Copies, held_by
from tests.helpers.ledgers.delivery import Mode as Running
from tests.helpers.ledgers.ledger import Findings, Lab
from tests.helpers.pipelines.auditing import BAD, DOUBLED, DROPPED, SLOW_QUEUE, SLOW_S
from tests.helpers.pipelines.holding import Hold
from tests.helpers.servers.away import CONFIG, GOES, STAYS, Topic, sending
from tests.helpers.servers.cluster import Cluster
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import at_most, until_found

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
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(400), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    places = {(number, n) for number, count in enumerate(COUNTS) for n in range(count)} - DROPPED - {BAD}
    keys = [f"{number}-{n}" for number, n in [*places, DOUBLED]]
    until_found(lambda: [key for each in read_topic(lab.client, sink) for key in each.keys], keys)
    rmqio = Tool(lab.broker.name_server, capsys)
    topics = ["--from-topic", source, "--to-topic", sink, "--dead-letter-topic", dead, "--audit-topic", hops]
    page = tmp_path / "audit.html"
    report = rmqio.json("audit", *topics, "--by", "keys", "--html", str(page), status=1)
    assert report["wrong"] == {"lost": len(DROPPED), "doubled": 1}
    assert (report["sent"], report["in_dead_letters"], report["foreign"]) == (sum(COUNTS), 1, 0)
    faults = {
        (each["after"][0], each["before"], kind, int(at["queue"].rpartition(":")[2]), at["offset"])
        for each in report["faults"]
        for kind in ("lost", "dead_letter", "doubled")
        for at in each[f"{kind}_messages"]
    }
    assert faults == {
        *(("read", "parsed", "lost", *place) for place in DROPPED),
        ("read", "parsed", "dead_letter", *BAD),
        ("parsed", "doubled", "doubled", *DOUBLED),
    }
    assert all(
        each["lost"] + each["doubled"] == len(each["lost_messages"]) + len(each["doubled_messages"])
        for each in report["faults"]
    )
    counts = {hop["hop"]: hop["count"] for hop in report["hops"] if hop["hop"]}
    assert counts == {"read": sum(COUNTS), "parsed": len(keys) - 1, "doubled": len(keys)}
    slow = next(hop for hop in report["hops"] if hop["hop"] == "doubled")
    assert slow["max_block_delay_ms"] >= SLOW_S * 1000 - 1, f"queue {SLOW_QUEUE} is held up there"
    assert {each["where"] for each in report["messages"]["lost"]} == {"between 'read' and 'parsed'"}
    assert {(each["keys"][0]) for each in report["messages"]["lost"]} == {f"{q}-{n}" for q, n in DROPPED}
    assert "between &#x27;parsed&#x27; and &#x27;doubled&#x27;" in page.read_text()
    by_place: Any = rmqio.json("audit", *topics, status=1)
    found = by_place["by"], by_place["lost"], by_place["doubled"], by_place["foreign"]
    assert found == ("place", len(DROPPED), 1, 0), "the copy has an id of its own"


STREAMS = [
    pytest.param(
        replace(SPARK_STREAMING, flags=(*SPARK_STREAMING.flags, "--max_records_per_trigger=500", "--spark_buckets=2")),
        id="SparkRunner --streaming",
        marks=pytest.mark.shows(Mode.SPARK_STREAMING),
    ),
    pytest.param(FLINK, id="FlinkRunner", marks=pytest.mark.shows(Mode.FLINK_STREAMING)),
]


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_that_is_killed_counts_what_went_through_once(
    stream: Running, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hops count what the runner has committed; what an attempt has sent that it did not commit is named as doubled."""
    # Spark is killed in its second micro-batch, and Flink when it has sent a batch, which are a thousand messages.
    count, offset = (1_500, 1_200) if stream.is_flink else (600, 300)
    hold = Hold(tmp_path / "hold", offset).begin()
    small = () if stream.is_flink else ("--max_records_per_trigger=400",)
    with contextlib.closing(Copies(lab.broker, tmp_path, count, count)) as copies:
        hops = f"{copies.sink}-hops"
        lab.broker.create_topic(hops, queues=2)
        flags = (f"--hops={hops}", *hold.flags)
        with copies.running(stream, 2, *flags, *small) as job:
            job.wait_until(
                lambda: hold.queues() >= held_by(stream) and copies.copied,
                "the queues to be held",
                progress=lambda: copies.copied,
                details=lambda: f"{hold.queues()} are held; {copies.findings()}",
            )
            job.kill()
        assert copies.copied < copies.sent
        hold.release()
        rmqio = Tool(lab.broker.name_server, capsys)
        topics = ["--from-topic", copies.sources[0].topic, "--to-topic", copies.sink, "--audit-topic", hops]

        def counts() -> dict[str, int]:
            found = audit(lab.client, Request(copies.sources[0].topic, copies.sink, audit_topic=hops, by="id"))
            return {name: passed.count for name, passed in found.hops.items()}

        wanted = {"before the write": copies.sent}
        with copies.running(stream, 2, *flags) as job:
            job.wait_until(
                lambda: not copies.findings().lost and counts() == wanted,
                "all to be copied and counted",
                progress=lambda: copies.copied,
                details=lambda: f"{copies.findings().lost[:10]}, {counts()}",
            )
            assert job.interrupt() == 130, job.log.read_text()[-4000:]
        found = copies.findings()
        audited = rmqio.json("audit", *topics, "--by", "id", status=int(bool(found.duplicated)))
    assert found == Findings(duplicated=found.duplicated)
    assert {hop["hop"]: hop["count"] for hop in audited["hops"] if hop["hop"]} == wanted
    assert (audited["lost"], audited["doubled"], audited["foreign"]) == (0, len(found.duplicated), 0)
    assert {(fault["after"][0], fault["lost"]) for fault in audited["faults"]} <= {("before the write", 0)}
    named = [(at["queue"], at["offset"]) for fault in audited["faults"] for at in fault["doubled_messages"]]
    assert sum(fault["doubled"] for fault in audited["faults"]) == len(found.duplicated)
    assert len(named) == len(found.duplicated)


@pytest.mark.exhaustive
@pytest.mark.parametrize("stream", STREAMS)
def test_a_broker_that_hangs_changes_no_count_and_late_messages_are_told(
    stream: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two brokers hangs for a while. The messages from before the start of the job are late."""
    late_s = 3
    with Cluster(brokers=(STAYS, GOES), config=CONFIG) as cluster, contextlib.closing(Topic(cluster)) as topic:
        hops = f"{topic.name}-hops"
        cluster.create_topic(hops, 2, on=[STAYS])
        topic.send(topic.queues, 200)
        flags = ["--start=earliest", f"--hops={hops}", f"--checkpoint_dir={tmp_path / 'checkpoint'}"]
        asked = Request(topic.name, topic.sink, audit_topic=hops, by="id", late_ms=late_s * 1000)
        with started(Job(topic.command([*stream.with_workers(2), *flags]), tmp_path)) as job:
            job.wait_until(topic.copied, "the first ones")
            with sending(cluster, topic):
                time.sleep(2)
                cluster.brokers[GOES].pause()
                time.sleep(8)
                cluster.brokers[GOES].resume()
                time.sleep(2)
            stored = topic.stored()

            def counts() -> dict[str, int]:
                return {name: passed.count for name, passed in audit(topic.client, asked).hops.items()}

            wanted = {"before the write": len(stored)}
            job.wait_until(lambda: counts() == wanted, "all to be counted", progress=counts, details=counts)
            assert job.interrupt() == 130, job.log.read_text()[-4000:]
        topics = ["--from-topic", topic.name, "--to-topic", topic.sink, "--audit-topic", hops]
        audited = Tool(cluster.name_server, capsys).json("audit", *topics, "--by", "id", "--late", f"{late_s}s")
        copied = topic.copy_times()
    assert {hop["hop"]: hop["count"] for hop in audited["hops"] if hop["hop"]} == {"before the write": len(stored)}
    assert (audited["sent"], audited["lost"], audited["doubled"], audited["foreign"]) == (len(stored), 0, 0, 0)
    late = sum(copied[place] - at > late_s * 1000 for place, at in stored.items())
    assert late >= 4 * 200, "those from before the start"
    assert audited["late"] == late
