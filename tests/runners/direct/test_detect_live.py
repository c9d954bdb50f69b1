"""Rules of a topic behind a table of a topic: changes of both are seen while the pipeline runs."""

from __future__ import annotations

import json
import sys
import uuid
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="rules need the extra 'rules'")
pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")

from rmqio.model import Message, MessageQueue
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.jobs import Job, started

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parents[2] / "helpers/pipelines/detecting.py"


def _rule(rule_id: str, value: str) -> str:
    return json.dumps([{"id": rule_id, "condition": {"field": "of_tier", "is": "equals", "value": value}}])


def test_a_row_and_a_rule_that_change_are_seen_by_events_that_follow(lab: Lab, tmp_path: Path) -> None:
    kinds = ("events", "rules", "users", "hits", "dead")
    events, rules, users, hits, dead = (f"live-{kind}-{uuid.uuid4().hex[:10]}" for kind in kinds)
    for topic in (events, rules, users, hits, dead):
        lab.broker.create_topic(topic, queues=1)
    numbers = count()

    def send(topic: str, body: str, key: str) -> None:
        queue = MessageQueue(topic, lab.broker.name, 0)
        send_all(lab.broker.broker, queue, [Message(body.encode(), keys=(key,))])

    def put(tier: str) -> None:
        send(users, json.dumps({"id": 1, "tier": tier}), "1")

    def found() -> list[dict[str, Any]]:
        return [json.loads(each.body) for each in read_topic(lab.client, hits)]

    def meet(job: Job, rule_id: str) -> int:
        """Sends events until one of them meets a rule, and returns the number of the first one sent."""
        first = next(numbers)

        def is_met() -> bool:
            send(events, json.dumps({"n": next(numbers), "user": 1}), "e")
            return any(hit["rule"] == rule_id and hit["event"]["n"] > first for hit in found())

        job.wait_until(is_met, f"an event meets {rule_id}", details=lambda: found()[-10:])
        return first

    put("silver")
    send(rules, _rule("is-silver", "silver"), "a.json")
    send(rules, _rule("is-gold", "gold"), "b.json")
    names = [events, rules, users, hits, dead, lab.broker.name_server, str(tmp_path)]
    with started(Job([sys.executable, str(PROGRAM), *names, "--runner=DirectRunner"], tmp_path)) as job:
        meet(job, "is-silver")
        assert {hit["rule"] for hit in found()} == {"is-silver"}
        put("gold")  # a live upsert
        meet(job, "is-gold")
        put("bronze")
        send(rules, _rule("is-bronze", "bronze"), "c.json")
        meet(job, "is-bronze")
        job.interrupt()
    tiers = {(hit["rule"], hit["event"]["of_tier"]) for hit in found()}
    assert tiers == {("is-silver", "silver"), ("is-gold", "gold"), ("is-bronze", "bronze")}
    assert not list(read_topic(lab.client, dead))
