"""A read's use of its options: one client, nothing said twice, nothing that would do nothing, no secret shown."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.display import DisplayData

from rmqio import (
    ClientOptions,
    FileCredentials,
    ReadAllFromRocketMQ,
    ReadFromRocketMQ,
    ReadOptions,
    Security,
    StartFrom,
    StopAt,
    Tls,
)
from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import LocalError
from rmqio.runners.spark.options import StreamOptions
from rmqio.serde import JsonDeserializer
from rmqio.testing import InMemoryClientFactory
from rmqio.transforms.shared import close_shared_clients
from rmqio.wire.command import RequestCode
from tests.helpers.fakes.broker import FakeBroker

AT = "h:9876"
TO_THE_END = StopAt.latest()
SIGNED = Security(FileCredentials("/a/file"), Tls(insecure=True), allowed_addresses=("10.0.*",))
Make = Callable[..., Any]


def one(**arguments: Any) -> ReadFromRocketMQ:
    return ReadFromRocketMQ("t", **arguments)


def client_of(transform: Any) -> ClientOptions:
    factory = transform._config.factory
    assert isinstance(factory, RemotingClientFactory)
    return factory.options


def shown(transform: Any) -> dict[str, Any]:
    return {item.key: item.value for item in DisplayData.create_from(transform).items}


# ---- client=ClientOptions(...) --------------------------------------------------------------------------------------

# Options that a read may give its client, with a value that is not the default.
CLIENT: dict[str, Any] = {
    "request_timeout_ms": 1,
    "connect_timeout_ms": 2,
    "max_retries": 4,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 6,
    "pull_depth": 7,
    "pull_batch": 8,
    "long_poll_ms": 9,
    "outage_timeout_ms": 10,
    "pull_group": "pulls",
    "replica_reads": False,
    "client_id_prefix": "billing-",
    "unit_name": "north",
    "namespace": "n",
    "security": SIGNED,
}
LETTERS: dict[str, Any] = {
    "busy_timeout_ms": 10,
    "heartbeat_ms": 11,
    "max_in_flight": 12,
    "vip_channel": True,
    "create_topics": True,
    "compress_over_bytes": 13,
    "compression": "zstd",
    "compression_level": 3,
    "inner_batches": True,
}


def test_every_option_of_a_client_is_here() -> None:
    told = {"name_servers", "route_refresh_ms", *CLIENT, *LETTERS}
    assert told == set(ClientOptions.__dataclass_fields__)


@pytest.mark.parametrize("name", CLIENT)
@pytest.mark.parametrize("make", [one, ReadAllFromRocketMQ])
def test_what_a_client_can_be_told_a_read_can_say(make: Make, name: str) -> None:
    client = ClientOptions(AT, **{name: CLIENT[name]})
    assert getattr(client_of(make(client=client, stop=TO_THE_END)), name) == CLIENT[name]


def test_all_of_it_at_once_with_letters_that_go_the_same_way() -> None:
    client = ClientOptions(AT, **CLIENT, **LETTERS)
    assert client_of(one(client=client, stop=TO_THE_END, dead_letter_topic="dead")) == client


@pytest.mark.parametrize("name", LETTERS)
@pytest.mark.parametrize("make", [one, ReadAllFromRocketMQ])
def test_what_a_producer_alone_heeds_is_refused_where_there_is_none(make: Make, name: str) -> None:
    client = ClientOptions(AT, **{name: LETTERS[name]})
    with pytest.raises(LocalError, match=rf"ClientOptions.{name}=.* does nothing on a read without dead_letter_topic"):
        make(client=client)


@pytest.mark.parametrize(
    "options",
    [
        ReadOptions(broker_heartbeat_interval_ms=5),
        ReadOptions.from_properties({"brokerserver.heartbeat.interval": "5"}),
    ],
)
def test_heartbeats_of_a_read_are_those_of_its_letters(options: ReadOptions) -> None:
    said = r"broker_heartbeat_interval_ms=5 \(property 'brokerserver.heartbeat.interval'\) does nothing .* dead_letter"
    with pytest.raises(LocalError, match=said):
        one(name_server=AT, options=options)
    assert client_of(one(name_server=AT, options=options, dead_letter_topic="dead")).heartbeat_ms == 5


# Options that both have: what `options` says, and what `client` does.
BOTH: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"pull_batch": 3}, {"pull_batch": 3}),
    ({"pull_depth": 3}, {"pull_depth": 3}),
    ({"request_timeout_ms": 3}, {"request_timeout_ms": 3}),
    ({"name_server_poll_interval_ms": 3}, {"route_refresh_ms": 3}),
    ({"broker_heartbeat_interval_ms": 3}, {"heartbeat_ms": 3}),
    ({"namespace": "n"}, {"namespace": "n"}),
    ({"security": SIGNED}, {"security": SIGNED}),
]
OTHERS: dict[str, Any] = {"namespace": "other", "security": Security(tls=Tls())}


@pytest.mark.parametrize(("mine", "theirs"), BOTH, ids=[next(iter(mine)) for mine, _ in BOTH])
def test_what_both_say_must_be_the_same_and_one_of_them_may_say_it(
    mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    (name, value) = next(iter(theirs.items()))
    at: dict[str, Any] = {"stop": TO_THE_END, "dead_letter_topic": "dead"}
    plain, told = ClientOptions(AT), ClientOptions(AT, **theirs)
    for arguments in (
        {"options": ReadOptions(**mine), "client": plain},
        {"client": told},
        {"options": ReadOptions(**mine), "client": told},
        {"options": ReadOptions(**mine), "name_server": AT},
    ):
        assert getattr(client_of(one(**arguments, **at)), name) == value
    other = ClientOptions(AT, **{name: OTHERS.get(name, 4)})
    with pytest.raises(LocalError, match=rf"ClientOptions.{name} .*; give one of them"):
        one(options=ReadOptions(**mine), client=other, **at)


def test_a_name_server_may_be_said_twice_if_it_is_the_same() -> None:
    client = ClientOptions("a:1;b:2", long_poll_ms=9)
    for given in ({}, {"name_server": "a:1, b:2"}, {"options": ReadOptions(name_server="a:1;b:2")}):
        assert client_of(one(client=client, **given)).name_servers == ("a:1", "b:2")
    for other in ({"name_server": "c:3"}, {"options": ReadOptions(name_server="c:3")}):
        with pytest.raises(LocalError, match=r"name_server is 'c:3' and ClientOptions.name_servers is 'a:1;b:2'"):
            one(client=client, **other)


def test_the_argument_security_goes_before_the_options_and_must_be_the_clients() -> None:
    other = Security(tls=Tls())
    assert client_of(one(name_server=AT, security=SIGNED, options=ReadOptions(security=other))).security == SIGNED
    with pytest.raises(LocalError, match=r"security and ClientOptions.security are both given and differ"):
        one(security=SIGNED, client=ClientOptions(AT, security=other))


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(LocalError, match=r"client is 'h:9876'; it must be rmqio.ClientOptions"):
        one(client=AT)


def test_the_users_group_is_not_pulled_under() -> None:
    with pytest.raises(LocalError, match="pull_group is 'g', the consumer group"):
        one(client=ClientOptions(AT, pull_group="g"), consumer_group="g")
    with pytest.raises(LocalError, match="group name 'a b' is illegal"):
        one(client=ClientOptions(AT, pull_group="a b"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"options": ReadOptions()}, 15_000),
        ({"options": ReadOptions(name_server_poll_interval_ms=2_000)}, 2_000),
        ({"options": ReadOptions(discovery_interval_ms=1_000)}, 500),
        ({"options": ReadOptions(discovery_interval_ms=0)}, 30_000),
        ({"options": ReadOptions(), "stop": TO_THE_END}, 30_000),
        ({"options": ReadOptions(name_server_poll_interval_ms=90_000), "stop": TO_THE_END}, 90_000),
    ],
)
def test_routes_are_young_enough_for_a_look_where_there_is_one(given: dict[str, Any], expected: int) -> None:
    assert client_of(one(name_server=AT, **given)).route_refresh_ms == expected


def test_what_the_client_is_told_arrives_at_the_broker_and_so_do_its_letters() -> None:
    """The whole way through a pipeline."""
    with FakeBroker() as broker:
        (queue,) = broker.cluster.create_topic("n%t", 1)
        broker.cluster.create_topic("n%dead", 1)
        broker.cluster.append(queue.topic, b"no JSON, and long enough to be compressed: " + b"x" * 100)
        client = ClientOptions(
            broker.name_server, pull_group="pulls", pull_batch=5, namespace="n", compress_over_bytes=100
        )
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            _ = pipeline | ReadFromRocketMQ(
                "t",
                client=client,
                start=StartFrom.earliest(),
                stop=TO_THE_END,
                deserializer=JsonDeserializer(),
                dead_letter_topic="dead",
            )
        pulls = [command.ext for _, command in broker.requests if command.code == RequestCode.PULL_MESSAGE]
        sends = [command for _, command in broker.requests if command.code == RequestCode.SEND_BATCH_MESSAGE]
        assert {(ext["consumerGroup"], ext["topic"]) for ext in pulls} == {("n%pulls", "n%t")}
        assert pulls[0]["maxMsgNums"] == "5"
        assert [command.ext["f"] != "0" for command in sends] == [True]
        assert len(broker.cluster.records("n%dead")) == 1
    close_shared_clients()


# ---- what would do nothing ------------------------------------------------------------------------------------------

MEMORY = InMemoryClientFactory("a cluster")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"name_server": AT}, "name_server and client_factory"),
        ({"client": ClientOptions(AT)}, "client and client_factory"),
        ({"security": SIGNED}, "security and client_factory"),
        ({"options": ReadOptions(name_server=AT)}, "ReadOptions.name_server and client_factory"),
        *(({"options": ReadOptions(**mine)}, f"{next(iter(mine))} and client_factory") for mine, _ in BOTH),
    ],
)
@pytest.mark.parametrize("make", [one, ReadAllFromRocketMQ])
def test_what_a_factory_knows_is_not_said_beside_it(make: Make, given: dict[str, Any], what: str) -> None:
    with pytest.raises(LocalError, match=rf"{what} are both given; the factory knows its [a-z ]+ already"):
        make(client_factory=MEMORY, **given)


@pytest.mark.parametrize(
    ("make", "options", "arguments", "message"),
    [
        (
            one,
            {"discovery_interval_ms": 5},
            {"stop": TO_THE_END},
            "discovery_interval_ms=5 does nothing here: a read with",
        ),
        (one, {"discovery_interval_ms": 5, "max_num_records": 1}, {}, "discovery_interval_ms=5 does nothing"),
        (one, {"new_queue_start": "latest"}, {"stop": TO_THE_END}, "new_queue_start='latest' does nothing"),
        (one, {"new_queue_start": "latest", "discovery_interval_ms": 0}, {}, "nothing with discovery_interval_ms=0"),
        (one, {"on_group_reset": "honour"}, {}, "on_group_reset='honour' does nothing without commits"),
        (one, {"splits_per_queue": 2, "max_num_records": 3}, {}, "a limit cannot be divided by offsets"),
        (one, {"splits_per_queue": 2}, {}, "reads each queue in order. Give stop="),
        (one, {"splits_per_queue": 2}, {"stop": StopAt.latest(), "consumer_group": "g"}, "needs commit_offsets=False"),
        (one, {"on_group_reset": "honour", "commit_offsets": False}, {"consumer_group": "g"}, "without commits"),
        (one, {"on_timestamp_after_end": "fail"}, {}, "on_timestamp_after_end='fail' does nothing without StartFrom"),
        (ReadAllFromRocketMQ, {"discovery_interval_ms": 5}, {}, "does nothing here: a topic is looked up once"),
        (ReadAllFromRocketMQ, {"new_queue_start": "latest"}, {}, "new_queue_start='latest' does nothing"),
        (ReadAllFromRocketMQ, {"topic": "t"}, {}, "ReadOptions.topic='t' does nothing on ReadAllFromRocketMQ"),
        (ReadAllFromRocketMQ, {"max_num_records": 3}, {}, "max_num_records has no effect on ReadAllFromRocketMQ"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    make: Make, options: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(LocalError, match=re.escape(message)):
        make(name_server=AT, options=ReadOptions(**options), **arguments)


@pytest.mark.parametrize("make", [one, ReadAllFromRocketMQ])
def test_to_look_once_is_what_a_read_with_an_end_does(make: Make) -> None:
    make(name_server=AT, options=ReadOptions(discovery_interval_ms=0), stop=TO_THE_END)


class Planning(FnApiRunner):
    """As a runner that plans."""

    def planned_source(self, options: PipelineOptions) -> Any:
        def source(planner: Any) -> Any:
            raise AssertionError("the read was not refused")

        return source


@pytest.mark.parametrize("name", ["max_records_per_bundle", "max_bundle_ms"])
@pytest.mark.parametrize("stop", [None, TO_THE_END])
def test_limits_of_bundles_are_refused_where_the_runner_plans(name: str, stop: StopAt | None) -> None:
    limit: dict[str, Any] = {name: 7}
    read = one(name_server=AT, stop=stop, options=ReadOptions(**limit))
    with pytest.raises(LocalError, match=rf"ReadOptions.{name}=7 does nothing on this runner") as error:
        _ = beam.Pipeline(runner=Planning()) | read
    parser = argparse.ArgumentParser()
    StreamOptions._add_argparse_args(parser)
    named = re.findall(r"--\w+", str(error.value))
    assert len(named) == 2
    assert set(named) <= set(parser._option_string_actions), "the runner has these options"


def test_a_read_with_a_record_limit_is_not_planned_and_keeps_its_bundles() -> None:
    options = ReadOptions(max_records_per_bundle=7, max_num_records=20)
    _ = beam.Pipeline(runner=Planning()) | one(name_server=AT, options=options)
