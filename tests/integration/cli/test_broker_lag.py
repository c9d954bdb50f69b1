"""The lag metrics that a broker exports have the group of a pipeline, which has no member that is online."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest

from rmqio import ClientOptions
from rmqio.client import RemotingQueueClient
from rmqio.client.admin import Admin
from rmqio.local import LocalRocketMQ
from rmqio.wire import admin_requests as wire
from tests.helpers.command_line import Tool
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.servers.ports import reserved_port
from tests.helpers.waiting import at_most, needed, until

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive, pytest.mark.timeout(300)]

_LAG = re.compile(
    r'^rocketmq_consumer_lag_messages\{.*consumer_group="(.+?)".*topic="(.+?)".*\} ([\d.]+)', re.MULTILINE
)


@pytest.fixture
def port() -> int:
    return reserved_port()


@pytest.fixture
def measured(port: int) -> Iterator[Lab]:
    exporter: dict[str, str | int | float] = {
        "metricsExporterType": "PROM",
        "metricsPromExporterHost": "127.0.0.1",
        "metricsPromExporterPort": port,
    }
    with (
        LocalRocketMQ(broker_config={**exporter, "useStaticSubscription": True}) as broker,
        closing(Lab(broker)) as lab,
        needed(broker.pid),
    ):
        yield lab


def test_the_metrics_of_a_broker_have_the_lag_of_a_pipelines_group(
    measured: Lab, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    name_server, rmqio = measured.broker.name_server, Tool(measured.broker.name_server, capsys)
    read = measured.topic(10, 10)
    other = measured.topic(5)
    with closing(RemotingQueueClient(ClientOptions(name_server))) as client:
        for queue in (*read, *other):
            client.commit_offset("billing", queue, 4)

    def lags() -> dict[tuple[str, str], float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=at_most(10)) as answer:
            return {(group, topic): float(lag) for group, topic, lag in _LAG.findall(answer.read().decode())}

    assert lags() == {}
    said = rmqio("groups", "billing", "--subscribe", read[0].topic)
    assert said == f"group billing reads {read[0].topic}, as the brokers know now\n"
    assert rmqio.err == ""
    until(lambda: lags() == {("billing", read[0].topic): 12.0}, "the lag", details=lags)


def test_a_group_keeps_what_else_was_set_and_a_broker_that_ignores_subscriptions_is_named(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    rmqio = Tool(lab.broker.name_server, capsys)
    (queue,) = lab.topic(1)
    group = f"group-{queue.topic}"
    with Admin(ClientOptions(lab.broker.name_server)) as admin:
        (broker,) = admin.masters()
        admin.ask(broker, wire.put_group({"groupName": group, "retryMaxTimes": 3}), "a group")
        rmqio("groups", group, "--subscribe", queue.topic)
        assert f"the metrics of {lab.broker.name} leave the group out" in rmqio.err
        config = wire.parse_groups(admin.ask(broker, wire.get_groups(), "groups"), "groups")[group]
    assert config["retryMaxTimes"] == 3
    assert [each["topic"] for each in config["subscriptionDataSet"]] == [queue.topic]
    rmqio("groups", group, "--subscribe", "no-such-topic", status=1)
    assert "no-such-topic" in rmqio.err
