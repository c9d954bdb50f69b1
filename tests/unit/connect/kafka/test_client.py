"""Questions to a cluster: what a client says about refusals reaches the error, and what passes is asked again."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="Kafka needs the extra 'kafka'")

from confluent_kafka import KafkaError, KafkaException

from rmqio.connect.kafka import client
from rmqio.connect.kafka.client import Cluster, KafkaAway, Reports, ask
from rmqio.errors import LocalError


class Client:
    """Fails with these codes, one for each question. The errors of its connections arrive when it is polled."""

    def __init__(self, codes: list[int], said: list[KafkaError]) -> None:
        self.reports = Reports("kafka://test")
        self.timeouts: list[float] = []
        self._codes, self._said = codes, said

    def poll(self, _: float) -> None:
        for each in self._said:
            self.reports(each)

    def question(self, timeout: float) -> str:
        self.timeouts.append(timeout)
        if self._codes:
            raise KafkaException(KafkaError(self._codes.pop(0)))
        return "answer"


def test_a_refusal_is_the_reason() -> None:
    said = [
        KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
        KafkaError(KafkaError._AUTHENTICATION, "no such user"),
        KafkaError(KafkaError._TRANSPORT, "Disconnected"),
    ]
    with pytest.raises(LocalError, match=r"^topic t: no such user$"):
        ask(asked := Client([KafkaError._TRANSPORT], said), "topic t", asked.question)


def test_an_alert_is_a_refusal() -> None:
    said = [KafkaError(KafkaError._TRANSPORT, "Receive failed: alert bad certificate: SSL alert number 42")]
    with pytest.raises(LocalError, match="bad certificate"):
        ask(asked := Client([KafkaError._TRANSPORT], said), "topic t", asked.question)


def test_a_slow_cluster_gets_more_time_each_time() -> None:
    asked = Client([KafkaError._TIMED_OUT, KafkaError._TRANSPORT], [])
    assert ask(asked, "topic t", asked.question) == "answer"
    assert asked.timeouts == [2, 4, 8]


def test_what_does_not_pass_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Client([KafkaError.TOPIC_AUTHORIZATION_FAILED], [])
    with pytest.raises(LocalError, match="topic t"):
        ask(asked, "topic t", asked.question)
    monkeypatch.setattr(client, "_TIMEOUT_S", 0)
    with pytest.raises(KafkaAway):
        ask(asked := Client([KafkaError._TRANSPORT], []), "topic t", asked.question)


def test_a_function_of_the_users_hears_of_errors_too() -> None:
    heard: list[Any] = []
    error = KafkaError(KafkaError._SSL, "not trusted")
    reports = Reports("kafka://test", more=heard.append)
    reports(error)
    assert (heard, str(reports)) == ([error], ": not trusted")


def test_options_that_the_client_refuses_do_not_show_others() -> None:
    for config in ({"sasl.pasword": "secret"}, {"security.protocol": "SASL_TLS", "sasl.password": "secret"}):
        with pytest.raises(LocalError) as caught:
            Cluster.of("h:9092", config).producer()
        assert "secret" not in str(caught.value)


def test_lines_of_the_client_about_connections_are_no_flood(caplog: pytest.LogCaptureFixture) -> None:
    """One outage is one line, whatever the client logs; a broker of several that stays away is a line after a while."""
    refused = "[thrd:h:1/bootstrap]: h:1/bootstrap: Connect failed: Connection refused (after 0ms in state CONNECT)"
    said = Reports("kafka://flood")
    for number in range(100):
        said.log(logging.ERROR, "%s [%s] %s", "FAIL", f"rdkafka#producer-{number}", refused)
        if number % 2:  # the end of a connection that has worked is no error of its own
            said(KafkaError(KafkaError._TRANSPORT, refused.partition(": ")[2]))
        said(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    said.passed()
    assert [each.getMessage() for each in caplog.records] == [
        "kafka://flood is away or busy; it is tried again until it answers: h:1/bootstrap: Connect failed: "
        "Connection refused",
        "kafka://flood is back after 0 s",
    ]
    assert str(said) == "", "the reason of an outage is no reason of a later error"


def test_other_lines_of_the_client_come_once_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    said = Reports("kafka://lines")
    for _ in range(100):
        now[0] += 1
        said.log(logging.WARNING, "%s [%s] %s", "REQTMOUT", "rdkafka#1", f"[thrd:x]: h:1/0: Timed out {now[0]:.0f}")
        said.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#1", f"[thrd:x]: h:2/1: refused {now[0]:.0f}")
    found = [each.getMessage().partition(": ")[0] for each in caplog.records]
    assert (found.count("REQTMOUT"), found.count("FAIL")) == (4, 3)
