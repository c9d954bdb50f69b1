"""Structured logs: what a line holds, and what none may."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from rmqio import Message, MessageQueue, ReadFromRocketMQ, ReadOptions, StartFrom, StopAt, WriteToRocketMQ, logs
from rmqio.errors import BrokerError, LocalError, RequestTimeout, TransportError
from rmqio.security import FileCredentials, Security
from rmqio.testing import InMemoryCluster
from rmqio.transforms.shared import close_shared_clients
from rmqio.wire.command import RequestCode
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.transforms.reading import clean_cluster, fill, read

LOGGER = logging.getLogger("rmqio.test")
QUEUE = MessageQueue("t", "broker-a", 3)
PLACE = {"topic": "t", "broker": "broker-a", "queue_id": 3}


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The text that all of the library logs, at any level."""
    logger = logging.getLogger("rmqio")
    before = logger.level, logger.propagate
    made = io.StringIO()
    handler = logs.configure(logging.DEBUG, stream=made)
    yield made
    logger.removeHandler(handler)
    logger.setLevel(before[0])
    logger.propagate = before[1]


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with clean_cluster() as made:
        yield made


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_object(stream: io.StringIO) -> None:
    LOGGER.info("two\nlines, %d", 7)
    (line,) = lines(stream)
    at = datetime.fromisoformat(line.pop("time"))
    assert at.utcoffset() is not None
    assert not at.utcoffset()
    assert line == {"level": "INFO", "logger": "rmqio.test", "message": "two\nlines, 7"}


def test_fields_come_of_extra_and_of_arguments(stream: io.StringIO) -> None:
    error = RequestTimeout("no answer")
    LOGGER.warning("x", extra=logs.event(queue=QUEUE, offset=0, group="g", count=2, error=error))
    LOGGER.warning("%s: retrying: %s", QUEUE, error)
    LOGGER.warning("x", extra=logs.event(topic="t", error="ValueError"))
    found = [{name: line[name] for name in logs.FIELDS if name in line} for line in lines(stream)]
    assert found == [
        PLACE | {"offset": 0, "group": "g", "count": 2, "error": "RequestTimeout"},
        PLACE | {"error": "RequestTimeout"},
        {"topic": "t", "error": "ValueError"},
    ]


def test_other_fields_and_values_do_not_come_out(stream: io.StringIO) -> None:
    LOGGER.warning("x", extra={"rmqio": {"body": "secret", "topic": {"a": "secret"}, "offset": b"secret"}})
    LOGGER.warning("x", extra={"rmqio": "secret", "password": "secret"})
    assert "secret" not in stream.getvalue()
    assert len(lines(stream)) == 2


def test_an_exception_is_a_field(stream: io.StringIO) -> None:
    try:
        raise TransportError("reset")
    except TransportError:
        LOGGER.exception("failed")
    (line,) = lines(stream)
    assert line["exception"].startswith("Traceback (most recent call last)")
    assert line["exception"].endswith("TransportError: reset")


def test_configured_again_it_writes_once_and_elsewhere(stream: io.StringIO) -> None:
    other = io.StringIO()
    handler = logs.configure("WARNING", json=False, stream=other)
    LOGGER.info("not this")
    LOGGER.warning("this")
    assert stream.getvalue() == ""
    assert other.getvalue().endswith(" WARNING rmqio.test: this\n")
    assert other.getvalue().count("\n") == 1
    logging.getLogger("rmqio").removeHandler(handler)
    with pytest.raises(LocalError, match="level is 'LOUD'"):
        logs.configure("LOUD")


@pytest.mark.parametrize("name", ["", "rmqio"])
def test_handlers_of_the_program_stay(name: str, stream: io.StringIO) -> None:
    logger = logging.getLogger(name)
    own = logging.StreamHandler(io.StringIO())
    own.setFormatter(logs.JsonFormatter())
    logger.addHandler(own)
    before = set(logging.getLogger().handlers), set(logging.getLogger("rmqio").handlers)
    new = logs.configure(stream=stream)
    try:
        assert set(logging.getLogger().handlers) == before[0]
        assert set(logging.getLogger("rmqio").handlers) - {new} < before[1], "that of the last time is replaced"
        assert own in logger.handlers
    finally:
        logger.removeHandler(own)
        logging.getLogger("rmqio").removeHandler(new)


@pytest.mark.parametrize(("value", "level"), [("json", logging.INFO), ("json:debug", logging.DEBUG)])
def test_the_environment_turns_it_on(
    value: str, level: int, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RMQIO_LOG", value)
    logs.configure_from_environment()
    LOGGER.warning("said")
    assert json.loads(capsys.readouterr().err)["message"] == "said"
    assert logging.getLogger("rmqio").level == level
    logs.configure(stream=stream)


@pytest.mark.parametrize("value", ["xml", "json:loud"])
def test_what_the_environment_says_wrongly_is_a_warning(
    value: str, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMQIO_LOG", value)
    logs.configure_from_environment()
    (line,) = lines(stream)
    assert "RMQIO_LOG" in line["message"]


def test_a_commit_that_failed_and_a_gap_say_where(cluster: InMemoryCluster, stream: io.StringIO) -> None:
    (queue,) = fill(cluster, 9)
    cluster.remove(queue, 3, 5)
    cluster.fail_next("commit_offset", BrokerError(16, "no permission", "update the offset"))
    options = ReadOptions(on_offset_out_of_range="earliest", poll_timeout_ms=1)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pipeline | read(cluster, consumer_group="g", options=options, stop=StopAt.latest())
    place = {"topic": "t", "broker": "broker-a", "queue_id": 0}
    (failed,) = [line for line in lines(stream) if "was not committed" in line["message"]]
    assert failed.items() >= (place | {"offset": 9, "group": "g", "error": "BrokerError"}).items()
    (gap,) = [line for line in lines(stream) if "are lost on the broker" in line["message"]]
    assert gap.items() >= (place | {"offset": 9, "count": 2}).items()


BODY = "b0dy-of-a-message"
SECRET = "s3cret-key-of-somebody"


def quoting(element: Any) -> Any:
    raise ValueError(f"cannot do with {element!r}")


def test_neither_bodies_nor_secrets_are_logged(stream: io.StringIO, tmp_path: Path) -> None:
    """Messages fail to be pulled, decoded, sent and serialized, under access control, at the level DEBUG."""
    file = tmp_path / "credentials"
    file.write_text(f"accessKey=somebody\nsecretKey={SECRET}\n")
    file.chmod(0o644)
    with FakeBroker() as broker:
        for topic in ("t", "dead"):
            broker.cluster.create_topic(topic, 1)
        ours: dict[str, Any] = {
            "name_server": broker.name_server,
            "security": Security(credentials=FileCredentials(str(file))),
            "dead_letter_topic": "dead",
        }
        broker.on(RequestCode.SEND_BATCH_MESSAGE, faults.close(executed=True))
        broker.on(RequestCode.PULL_MESSAGE, faults.close())
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            good = pipeline | beam.Create([BODY, Message(BODY.encode(), topic="no such topic!")])
            good | "Write" >> WriteToRocketMQ("t", **ours)
            pipeline | "Odd" >> beam.Create([(BODY,)]) | "Never" >> WriteToRocketMQ("t", serializer=quoting, **ours)
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            pipeline | ReadFromRocketMQ(
                "t", start=StartFrom.earliest(), stop=StopAt.latest(), deserializer=quoting, **ours
            )
        stored = [record.body for record in broker.cluster.records("t") + broker.cluster.records("dead")]
    close_shared_clients()
    assert sum(BODY.encode() in body for body in stored) >= 4, "each has failed where it should"
    said = [line["message"] for line in lines(stream)]
    for text in ("cannot be sent", "retrying", "can read the credentials", "try 2"):
        assert any(text in each for each in said), said
    assert BODY not in stream.getvalue()
    assert SECRET not in stream.getvalue()
