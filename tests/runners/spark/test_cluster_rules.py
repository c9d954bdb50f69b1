"""Rules on a real Spark cluster, of two executors that share nothing: a change reaches both while a job runs."""

from __future__ import annotations

import itertools
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("msgspec", reason="rules need the extra 'rules'")

from rmqio.model import Message, MessageQueue
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.spark_cluster import Cluster, Program
from tests.helpers.waiting import runs, until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in Linux's /proc"),
]

COUNT = 100
PROGRAM = """
    import json, os, sys

    import apache_beam as beam

    from rmqio import ReadFromRocketMQ, StartFrom, WriteToRocketMQ
    from rmqio.rules import MatchRules, RuleSet

    SERVER, EVENTS, RULES, HITS = {names!r}

    def shown(match):  # an executor's folder says which one it is
        place = os.getcwd()
        number = json.loads(match.message.body)["n"]
        return json.dumps([match.rule_id, number, place, match.ruleset_version]).encode()

    if __name__ == "__main__":
        with beam.Pipeline(argv=sys.argv[1:]) as p:
            events = p | ReadFromRocketMQ(EVENTS, name_server=SERVER, start=StartFrom.earliest())
            ruleset = RuleSet.from_topic(RULES, name_server=SERVER)
            hits, _ = events | MatchRules(ruleset, refresh_s=0.001)  # each bundle looks for new rules
            _ = hits | beam.Map(shown) | WriteToRocketMQ(HITS, name_server=SERVER)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    yield started
    started.close()


def rule(name: str, condition: str, value: Any) -> Message:
    """A rule with a name, in the file of that name."""
    text = json.dumps([{"id": name, "condition": {"field": "ms", "is": condition, "value": value}}])
    return Message(text.encode(), keys=("one.json",))


def test_rules_that_change_reach_both_executors(cluster: Cluster, lab: Lab, tmp_path: Path) -> None:
    """Each bundle that begins after a change has the new rules, on whichever executor it is."""
    topics = [f"rules-{kind}-{uuid.uuid4().hex[:10]}" for kind in ("events", "rules", "hits")]
    events, rules, hits = topics
    for name in topics:
        lab.broker.create_topic(name, queues=2)

    def publish(message: Message) -> None:
        send_all(lab.broker.broker, MessageQueue(rules, lab.broker.name, 0), [message])

    def send(numbers: list[int]) -> None:
        for queue in range(2):
            bodies = [Message(json.dumps({"n": n, "ms": 95}).encode()) for n in numbers[queue::2]]
            send_all(lab.broker.broker, MessageQueue(events, lab.broker.name, queue), bodies)

    def met() -> set[tuple[str, str, str]]:
        """Sends events. Returns which rules they met, with executor and version, when their bundles are over."""
        numbers = set(itertools.islice(numbered, COUNT))
        send(sorted(numbers))

        def found() -> list[tuple[int, tuple[str, str, str]]]:
            hits_now = [json.loads(record.body) for record in read_topic(lab.client, hits)]
            return [(n, (name, place, version)) for name, n, place, version in hits_now if n in numbers]

        def missing() -> set[int]:
            return numbers - {n for n, _ in found()}

        alive = [runs(running.process)]
        until(lambda: not missing(), "events", progress=missing, alive=alive, details=missing, still_s=400)
        return {where for _, where in found()}

    numbered = itertools.count()
    publish(rule("old", "greater", 90))
    source = PROGRAM.format(names=(lab.broker.name_server, *topics))
    running = Program(cluster, tmp_path, source, "--streaming", f"--checkpoint_dir={tmp_path}/checkpoint")
    try:
        before = met()
        publish(rule("new", "less", 99))
        met()  # perhaps in bundles that began before the change
        after = met()
        publish(rule("bad", "cidr", "10.0.0.300"))  # leaves those before in force
        met()
        kept = met()
    finally:
        running.close()
    for name, each in (("old", before), ("new", after), ("new", kept)):
        assert len({place for _, place, _ in each}) == 2, "on both executors"
        assert len({version for _, _, version in each}) == 1, "with the same rules"
        assert {rule_id for rule_id, _, _ in each} == {name}
    assert before != after == kept
