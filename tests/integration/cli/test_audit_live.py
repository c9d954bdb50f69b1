"""`rmqio audit --live` between two topics of a real broker, as a program that Ctrl-C ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid

import pytest

from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue
from tests.helpers.client.raw_send import send_all
from tests.helpers.waiting import at_most, heard, runs, until

pytestmark = pytest.mark.broker


def test_a_live_audit_sees_what_is_missing_arrive(rocketmq: LocalRocketMQ) -> None:
    source, sink = (f"live-{kind}-{uuid.uuid4().hex[:8]}" for kind in ("source", "sink"))
    queues = {}
    for topic in (source, sink):
        rocketmq.create_topic(topic, queues=1)
        queues[topic] = MessageQueue(topic, rocketmq.name, 0)
    messages = [Message(b"%d" % n, keys=(f"k{n}",)) for n in range(20)]
    send_all(rocketmq.broker, queues[source], messages)
    send_all(rocketmq.broker, queues[sink], messages[:-1])
    command = [sys.executable, "-u", "-m", "rmqio", "audit", "--live", "--from_topic", source, "--to_topic", sink]
    command += ["--by", "keys", "--every", "1s", "--grace", "0s", "--name_server", rocketmq.name_server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ) as live:
        try:
            seen, alive = heard(live.stdout), [runs(live)]
            until(lambda: len(seen) > 0, "its first line", alive=alive)
            assert re.search(r"sent 20\b.*\blost 1\b", seen[0]), seen[0]
            send_all(rocketmq.broker, queues[sink], messages[-1:])
            until(lambda: re.search(r"\blost 0\b", seen[-1]), "no loss", alive=alive, details=lambda: seen)
            assert re.search(r"sent 20\b.*\blost 0\b", seen[-1]), seen
        finally:
            live.send_signal(signal.SIGINT)
        assert live.wait(at_most(20)) == 130
