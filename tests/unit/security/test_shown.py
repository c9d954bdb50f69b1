"""A search for the secret in all that a pipeline shows, and leaves behind, for each source of credentials.

The secret is in this process meanwhile: each request is signed with it.
"""

from __future__ import annotations

import gc
import io
import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.display import DisplayData

from rmqio import (
    CallableCredentials,
    Credentials,
    EnvironmentCredentials,
    FileCredentials,
    ReadFromRocketMQ,
    Security,
    StartFrom,
    StopAt,
    WriteToRocketMQ,
)
from rmqio.client.client import RemotingQueueClient
from rmqio.client.factory import RemotingClientFactory
from rmqio.client.producer import RemotingProducer
from rmqio.options import ClientOptions
from rmqio.transforms.shared import close_shared_clients
from rmqio.wire.command import RequestCode
from tests.helpers.fakes import faults
from tests.helpers.fakes.broker import FakeBroker

ACCESS_KEY = "access-key-93b1"
SECRET = "a-secret-93b1e7"
TOKEN = "a-token-93b1e7"


def looked_up() -> Credentials:
    return Credentials(ACCESS_KEY, SECRET, TOKEN)


@pytest.fixture(params=["environment", "file", "function"])
def security(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Security:
    if request.param == "environment":
        monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", ACCESS_KEY)
        monkeypatch.setenv("ROCKETMQ_SECRET_KEY", SECRET)
        monkeypatch.setenv("ROCKETMQ_SECURITY_TOKEN", TOKEN)
        return Security(EnvironmentCredentials())
    if request.param == "function":
        return Security(CallableCredentials(f"{__name__}:looked_up"))
    path = tmp_path / "credentials"
    path.write_text(f"accessKey={ACCESS_KEY}\nsecretKey={SECRET}\nsecurityToken={TOKEN}\n")
    path.chmod(0o600)
    return Security(FileCredentials(str(path)))


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """The text that anybody logs, at any level."""
    text = io.StringIO()
    handler, root = logging.StreamHandler(text), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.setLevel(level)
    root.removeHandler(handler)


def pickled(*objects: object) -> list[bytes]:
    """By all that pickles pipelines; what cannot be pickled cannot travel."""
    found: list[Callable[[object], bytes]] = [pickle.dumps, pickler.dumps]
    return [dumps(each) for dumps in found for each in objects]


def test_what_a_pipeline_shows_and_logs_has_no_secret_in_it(security: Security, logged: io.StringIO) -> None:
    options = PipelineOptions([], streaming=False)
    with FakeBroker() as broker:
        broker.cluster.create_topic("t", 1)
        broker.on(RequestCode.SEND_BATCH_MESSAGE, faults.close(executed=True))
        broker.on(RequestCode.PULL_MESSAGE, faults.close())
        given: dict[str, Any] = {"name_server": broker.name_server, "security": security}
        write = WriteToRocketMQ("t", **given)
        read = ReadFromRocketMQ("t", start=StartFrom.earliest(), stop=StopAt.latest(), **given)
        shown: list[object] = []
        for transforms in ((beam.Create([b"1", b"2"]), write), (read,)):
            pipeline = beam.Pipeline(runner=FnApiRunner(), options=options)
            at: Any = pipeline
            for transform in transforms:
                at |= transform
            result = pipeline.run()
            result.wait_until_finish()
            shown += [pipeline.to_runner_api().SerializeToString(), str(result.metrics().query())]
        factory = RemotingClientFactory(ClientOptions(broker.name_server, security=security))
        assert security.source is not None
        assert security.source.get() == looked_up()
        plain = [security, security.source, factory]
        shown += [*pickled(*plain, factory.options), *plain, read, write, vars(read), vars(write)]
        shown += [DisplayData.create_from(each).items for each in (read, write, options)]
        shown += [options.get_all_options(), str(vars(options))]
        live = [each for each in gc.get_objects() if isinstance(each, RemotingQueueClient | RemotingProducer)]
        shown += [live, *map(str, live)]
        signed = [command.ext.get("AccessKey") for _, command in broker.requests]
        read_back = len(broker.cluster.records("t"))
    close_shared_clients()
    assert read_back >= 2
    assert signed.count(ACCESS_KEY) >= 6, "the secret has been looked up here"
    assert "retrying" in logged.getvalue() or "try 2" in logged.getvalue()
    found = b"\n".join(each if isinstance(each, bytes) else repr(each).encode() for each in (*shown, logged.getvalue()))
    assert type(security.source).__name__.encode() in found
    for value in (SECRET, ACCESS_KEY, TOKEN):
        assert value.encode() not in found
