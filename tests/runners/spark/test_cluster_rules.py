"""Rules on a real Spark cluster, of two executors that share nothing: a change reaches both while a job runs."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("msgspec", reason="rules need the extra 'rules'")

from rmqio.model import Message, MessageQueue
from rmqio.pipelines.check import read_topic
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

REFRESH_S = 2
MOST_BUNDLE_S = 3
"""How long a bundle lasts that began with the rules before."""
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
            hits, _ = events | MatchRules(RuleSet.from_topic(RULES, name_server=SERVER), refresh_s={refresh_s})
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
    """After `refresh_s` and the bundle that runs, each event meets the new rules, on whichever executor it is."""
    topics = [f"rules-{kind}-{uuid.uuid4().hex[:10]}" for kind in ("events", "rules", "hits")]
    events, rules, hits = topics
    for name in topics:
        lab.broker.create_topic(name, queues=2)

    def publish(message: Message) -> None:
        send_all(lab.broker.broker, MessageQueue(rules, lab.broker.name, 0), [message])

    def send(numbers: range) -> None:
        for queue in range(2):
            bodies = [Message(json.dumps({"n": n, "ms": 95}).encode()) for n in numbers[queue::2]]
            send_all(lab.broker.broker, MessageQueue(events, lab.broker.name, queue), bodies)

    def found(rule_id: str, numbers: range) -> list[tuple[int, str, str]]:
        """The events that met the rule: number, executor, version of the rules."""
        bodies = [json.loads(record.body) for record in read_topic(lab.client, hits)]
        return [(n, place, version) for name, n, place, version in bodies if name == rule_id and n in numbers]

    def met(rule_id: str, numbers: range) -> set[tuple[str, str]]:
        """Sends events, and returns where they met the rule, once all of them have."""
        send(numbers)

        def missing() -> set[int]:
            return set(numbers) - {n for n, _, _ in found(rule_id, numbers)}

        alive = [runs(running.process)]
        what = f"events that meet {rule_id}"
        until(lambda: not missing(), what, progress=missing, alive=alive, details=missing, still_s=400)
        return {(place, version) for _, place, version in found(rule_id, numbers)}

    publish(rule("old", "greater", 90))
    source = PROGRAM.format(names=(lab.broker.name_server, *topics), refresh_s=REFRESH_S)
    running = Program(cluster, tmp_path, source, "--streaming", f"--checkpoint_dir={tmp_path}/checkpoint")
    try:
        before = met("old", range(COUNT))
        publish(rule("new", "less", 99))
        time.sleep(REFRESH_S + MOST_BUNDLE_S)
        numbers = range(COUNT, 2 * COUNT)
        after = met("new", numbers)
        publish(rule("bad", "cidr", "10.0.0.300"))  # leaves those before in force
        time.sleep(REFRESH_S + MOST_BUNDLE_S)
        kept = met("new", range(2 * COUNT, 3 * COUNT))
        assert not found("old", range(COUNT, 3 * COUNT))
    finally:
        running.close()
    for each in (before, after, kept):
        assert len({place for place, _ in each}) == 2, "on both executors"
        assert len({version for _, version in each}) == 1, "with the same rules"
    assert before != after == kept
