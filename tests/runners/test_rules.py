"""`detect.py` finds the same on all runners, and its rules change under it."""

from __future__ import annotations

import itertools
import json
import sys
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("msgspec", reason="rules need the extra 'rules'")

from rmqio.model import Message, MessageQueue
from rmqio.rules import RuleSet
from rmqio.runners.capabilities import Mode
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.programs import main_of, program
from tests.helpers.rules.meaning import matching
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import until_found

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

FLAGS = {
    Mode.DIRECT: "DirectRunner",
    Mode.SPARK: "SparkRunner",
    Mode.SPARK_STREAMING: "SparkRunner --streaming",
    Mode.FLINK: "FlinkRunner",
}
RUNNERS = [pytest.param(flags, id=flags, marks=pytest.mark.shows(mode)) for mode, flags in FLAGS.items()]
ENDLESS = [
    pytest.param(flags, id=flags, marks=pytest.mark.shows(mode))
    for mode, flags in {**FLAGS, Mode.FLINK_STREAMING: "FlinkRunner --streaming"}.items()
    if mode in (Mode.DIRECT, Mode.SPARK_STREAMING, Mode.FLINK_STREAMING)
]
COUNT = 200
REFRESH_S = 0.001
"""Each bundle looks for new rules before it begins."""
RULES = [
    {"id": "slow", "level": "low", "condition": {"field": "ms", "is": "greater", "value": 90}},
    {
        "id": "shell",
        "level": "high",
        "condition": {"field": "image", "is": "ends_with", "value": "/SH", "ignore_case": True},
    },
]


class Topics(NamedTuple):
    events: str
    hits: str
    rules: str
    dead: str


@pytest.fixture
def topics(lab: Lab) -> Topics:
    names = [f"rules-{kind}-{uuid.uuid4().hex[:10]}" for kind in Topics._fields]
    for name in names:
        lab.broker.create_topic(name, queues=2)
    return Topics(*names)


def send(lab: Lab, topic: str, messages: list[Message]) -> None:
    for number in range(2):
        if messages[number::2]:
            send_all(lab.broker.broker, MessageQueue(topic, lab.broker.name, number), messages[number::2])


def command(lab: Lab, topics: Topics, runner: str, folder: Path) -> list[str]:
    flags = [
        f"--name_server={lab.broker.name_server}",
        f"--source_topic={topics.events}",
        f"--sink_topic={topics.hits}",
    ]
    flags += [f"--dead_letter_topic={topics.dead}", "--start=earliest", *f"--runner={runner}".split()]
    return [*flags, f"--checkpoint_dir={folder}/checkpoint"] if runner == "SparkRunner --streaming" else flags


@pytest.mark.parametrize("runner", RUNNERS)
def test_hits_are_those_of_the_reference(
    runner: str, topics: Topics, lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(RULES))
    events = [{"n": n, "ms": n, "image": ("/bin/sh", "/bin/ls")[n % 3 > 0]} for n in range(COUNT)]
    send(lab, topics.events, [*(Message(json.dumps(each).encode()) for each in events), Message(b"{")])
    flags = [*command(lab, topics, runner, tmp_path), "--stop=latest", f"--rules={path}"]
    assert main_of("detect")(flags) == 0, capsys.readouterr().err
    rules = RuleSet.from_files(path).load()
    wanted = sorted((rule.id, event["n"]) for event in events for rule in matching(rules, event))
    assert {rule_id for rule_id, _ in wanted} == {"slow", "shell"}
    until_found(lambda: [(hit["rule"], hit["event"]["n"]) for hit in hits_of(lab, topics)], wanted)
    found = hits_of(lab, topics)
    assert sorted((hit["rule"], hit["event"]["n"]) for hit in found) == wanted
    of_shell = next(hit for hit in found if hit["rule"] == "shell")
    assert of_shell["conditions"] == [{"field": "image", "condition": "ends_with /SH", "value": "/bin/sh"}]
    (letter,) = read_topic(lab.client, topics.dead)
    assert letter.body == b"{"


@pytest.mark.parametrize("runner", ENDLESS)
def test_rules_change_under_a_job(runner: str, topics: Topics, lab: Lab, tmp_path: Path) -> None:
    """A new rule goes live, a bad one leaves those before in force, and an event names the version that it met.

    Each bundle that begins after a change has the new rules, in whichever queue and worker it is.
    """

    def publish(name: str, text: str) -> None:
        queue = MessageQueue(topics.rules, lab.broker.name, 0)
        send_all(lab.broker.broker, queue, [Message(text.encode(), keys=(name,))])

    def meet(job: Job, rule_id: str) -> None:
        """Sends events until one of them meets a rule."""

        def is_met() -> bool:
            send(lab, topics.events, [Message(json.dumps({"n": next(numbers), "ms": 95, "image": "sh"}).encode())])
            return any(hit["rule"] == rule_id and hit["event"]["n"] > first for hit in hits_of(lab, topics))

        first = next(numbers)
        job.wait_until(is_met, f"an event meets {rule_id}", details=lambda: hits_of(lab, topics)[-10:])

    numbers = iter(range(100_000))
    publish("one.json", json.dumps([RULES[0]]))
    flags = [*command(lab, topics, runner, tmp_path), f"--rules_topic={topics.rules}", f"--refresh_s={REFRESH_S}"]
    with started(Job([sys.executable, program("detect"), *flags], tmp_path)) as job:
        meet(job, "slow")
        publish("two.json", json.dumps([{"id": "new", "condition": {"field": "image", "is": "equals", "value": "sh"}}]))
        meet(job, "new")
        publish(
            "two.json", json.dumps([{"id": "bad", "condition": {"field": "ip", "is": "cidr", "value": "10.0.0.300"}}])
        )
        meet(job, "new")
        publish("two.json", json.dumps([{"id": "last", "condition": {"field": "ms", "is": "equals", "value": 95}}]))

        def all_meet() -> bool:
            """Sends events to all queues. Returns whether all met the last rules, when their bundles are over.

            A bundle writes at its end what fits into one batch.
            """
            after, *later = itertools.islice(numbers, 1 + COUNT)
            send(lab, topics.events, [Message(json.dumps({"n": n, "ms": 95, "image": "sh"}).encode()) for n in later])

            def unmet() -> set[int]:
                return {*later} - met_since(lab, topics, after, "slow")

            job.wait_until(lambda: not unmet(), "events of all queues", details=unmet)
            return met_since(lab, topics, after, "last") == set(later)

        all_meet()  # or not: the bundles may have begun before the change
        assert all_meet(), "bundles that began later"
        job.interrupt()
    versions: dict[str, set[str]] = {}
    for hit in hits_of(lab, topics):
        versions.setdefault(hit["rule"], set()).add(hit["rules_version"])
    assert len(versions["new"]) == len(versions["last"]) == 1
    assert versions["new"] | versions["last"] < versions["slow"]


def met_since(lab: Lab, topics: Topics, number: int, rule_id: str) -> set[int]:
    """The events after a number that met a rule."""
    found = {hit["event"]["n"] for hit in hits_of(lab, topics) if hit["rule"] == rule_id}
    return {each for each in found if each > number}


def hits_of(lab: Lab, topics: Topics) -> list[dict[str, Any]]:
    return [json.loads(record.body) for record in read_topic(lab.client, topics.hits)]
