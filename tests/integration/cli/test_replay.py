"""`python -m rmqio.replay` on a real broker, as its users start it; killed in the middle, it is repeated."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from rmqio.client.client import RemotingQueueClient
from rmqio.client.factory import RemotingClientFactory
from rmqio.dead_letters.letters import Failed, letter_id, make_letter
from rmqio.local import LocalRocketMQ
from rmqio.model import MessageQueue
from rmqio.options import ClientOptions
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import stored
from tests.helpers.waiting import at_most, until_found

pytestmark = pytest.mark.broker

COUNT = 12_000


@pytest.fixture
def client(rocketmq: LocalRocketMQ) -> Iterator[RemotingQueueClient]:
    client = RemotingQueueClient(ClientOptions(rocketmq.name_server))
    yield client
    client.close()


def topic(rocketmq: LocalRocketMQ) -> str:
    name = f"replay-{uuid.uuid4().hex[:12]}"
    rocketmq.create_topic(name, queues=2)
    return name


def fill(rocketmq: LocalRocketMQ, letters: str, source: str, count: int) -> None:
    """As many letters of a topic, in both queues."""
    producer = RemotingClientFactory(ClientOptions(rocketmq.name_server)).producer("g")
    queues, origin = producer.queues(letters), MessageQueue(source, "b", 0)
    for begin in range(0, count, 500):
        made = [
            make_letter(Failed(b"%d" % n, "SerdeError", "no JSON", origin, n, properties=(("p", "q"),)))
            for n in range(begin, min(begin + 500, count))
        ]
        producer.send_batch(made, queues[begin // 500 % 2], message_ids=list(map(letter_id, made)))
    producer.close()
    client = RemotingQueueClient(ClientOptions(rocketmq.name_server))
    stored(client, letters, [b"%d" % n for n in range(count)])
    client.close()


def run(rocketmq: LocalRocketMQ, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rmqio.replay", f"--name_server={rocketmq.name_server}", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=at_most(60), check=False)


# A replay that is killed when so many have been acknowledged.
KILLED = """
import os, signal, sys
from rmqio.replay import replay
def progress(result, total):
    if result.sent >= 6_000:
        os.kill(os.getpid(), signal.SIGKILL)
replay(sys.argv[1], name_server=sys.argv[2], consumer_group=sys.argv[3], progress=progress)
"""


def test_a_replay_that_is_killed_and_repeated_loses_nothing_and_its_copies_are_known(
    rocketmq: LocalRocketMQ, client: RemotingQueueClient
) -> None:
    source, letters, group = topic(rocketmq), topic(rocketmq), f"replay-{uuid.uuid4().hex[:12]}"
    fill(rocketmq, letters, source, COUNT)
    command = [sys.executable, "-c", KILLED, letters, rocketmq.name_server, group]
    assert subprocess.run(command, timeout=at_most(60), check=False).returncode == -9
    committed = sum(client.committed_offset(group, queue) or 0 for queue in client.queues(letters))
    assert 0 < committed < COUNT

    done = run(rocketmq, f"--dead_letter_topic={letters}", "--back", f"--consumer_group={group}", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["read"], found["sent"], found["not_sent"]) == (COUNT - committed, COUNT - committed, 0)
    bodies = {b"%d" % number for number in range(COUNT)}
    until_found(lambda: {record.body for record in read_topic(client, source)}, bodies)
    back = list(read_topic(client, source))
    assert {record.body for record in back} == bodies
    assert len({(record.body, record.message_id) for record in back}) == COUNT
    assert COUNT < len(back) < 2 * COUNT
    assert {record.get_property("p") for record in back} == {"q"}

    again = run(rocketmq, f"--dead_letter_topic={letters}", "--back", f"--consumer_group={group}")
    last = f"Read 0 letters of topic {letters} and chose 0. 0 messages were sent to the topics that they came from."
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, last)


def test_it_shows_what_there_is_and_says_what_it_cannot_do(rocketmq: LocalRocketMQ) -> None:
    letters = topic(rocketmq)
    fill(rocketmq, letters, "no-such-topic", 3)
    shown = run(rocketmq, f"--dead_letter_topic={letters}")
    assert shown.returncode == 0, shown.stderr
    assert [line.split() for line in shown.stdout.splitlines()][1:3] == [
        ["no-such-topic", "SerdeError", "3", "3", "0", "0"],
        ["first", "reason:", "no", "JSON"],
    ]
    assert "3 messages would be sent to the topics that they came from." in shown.stdout
    assert "Nothing has been sent. To send the messages, add --back" in shown.stdout
    failed = run(rocketmq, f"--dead_letter_topic={letters}", "--back")
    assert failed.returncode == 1
    assert failed.stdout.count("TOPIC_NOT_EXIST") == 3
    missing = run(rocketmq, "--dead_letter_topic=no-such-topic")
    assert missing.returncode == 1
    assert "no-such-topic" in missing.stderr
    assert "Traceback" not in missing.stderr
