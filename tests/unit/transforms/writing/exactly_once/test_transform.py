"""`WriteToRocketMQ` exactly once: what goes together, and what it makes of a pipeline."""

from __future__ import annotations

import datetime as dt
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from rmqio import WriteToRocketMQ
from rmqio.errors import LocalError
from rmqio.model import Message
from rmqio.options import WriteOptions
from rmqio.repeats import LookBack
from rmqio.runners.capabilities import Requirement
from rmqio.runners.submission import requirements_of
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from tests.helpers.transforms.writing_once import GROUP, bodies


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"exactly_once": LookBack()}, "needs a group that no other pipeline writes with"),
        ({"exactly_once": LookBack("g"), "options": WriteOptions(asynchronous=True)}, "waits for each batch"),
        ({"exactly_once": LookBack("g"), "backend": "librocketmq"}, "repeats sends by itself"),
        ({"exactly_once": True}, "must be rmqio.LookBack"),
        ({"exactly_once": LookBack("no group")}, "group"),
        ({"exactly_once": LookBack("g" * 118)}, "group"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        WriteToRocketMQ("t", name_server="h:1", **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"group": 1},
        {"since": "now"},
        {"since": dt.datetime(2026, 1, 1)},
        {"since": -1},
        {"redo_within_s": 0},
        {"redo_within_s": float("nan")},
        {"outage_timeout_s": float("inf")},
        {"max_messages": 1.5},
    ],
)
def test_a_look_back_is_checked(arguments: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match=f"LookBack.{next(iter(arguments))} is "):
        LookBack(**arguments)


@pytest.mark.parametrize("flags", [[], ["--streaming"]], ids=["bounded", "stream"])
def test_a_pipeline_has_a_position_where_it_may_go_on(cluster: InMemoryCluster, flags: list[str]) -> None:
    """A finalizer in a bounded pipeline would make a stream of it on Flink."""
    with beam.Pipeline(FnApiRunner(), PipelineOptions(flags)) as pipeline:
        write = WriteToRocketMQ(
            "t",
            id_fn=lambda body: f"id-{body.decode()}",
            exactly_once=LookBack(GROUP),
            client_factory=InMemoryClientFactory(cluster.name),
        )
        _ = pipeline | beam.Create([b"%d" % number for number in range(10)]) | write
    proto = pipeline.to_runner_api()
    assert bodies(cluster) == [*range(10)]
    assert (Requirement.FINALIZATION in requirements_of(proto)) is bool(flags)
    assert {group for group, _, _ in cluster.commits} == ({GROUP, f"{GROUP}_queues"} if flags else set())


@pytest.mark.parametrize("in_batches", [False, True])
def test_a_delayed_message_cannot_be_found_and_goes_to_failed(cluster: InMemoryCluster, in_batches: bool) -> None:
    delayed = Message(b"1", delay_level=1)
    with beam.Pipeline(FnApiRunner()) as pipeline:
        write = WriteToRocketMQ(
            "t",
            id_fn=str,
            exactly_once=LookBack(GROUP),
            client_factory=InMemoryClientFactory(cluster.name),
            batches=in_batches,
        )
        result = pipeline | beam.Create([[delayed] if in_batches else delayed]) | write
        assert_that(result.failed | beam.Map(lambda failed: failed.error), equal_to(["LocalError"]))
    assert bodies(cluster) == []


def test_what_is_in_the_sink_is_never_asked_of_a_replica_which_may_be_behind() -> None:
    exact = WriteToRocketMQ("t", name_server="h:1", id_fn=str, exactly_once=LookBack(group="g"))
    usual = WriteToRocketMQ("t", name_server="h:1")
    assert [each._backend_factory().options.replica_reads for each in (exact, usual)] == [False, True]  # type: ignore[attr-defined]
