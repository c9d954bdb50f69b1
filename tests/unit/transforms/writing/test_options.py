"""A write's use of its options: nothing said twice, nothing that would do nothing, no secret shown."""

from __future__ import annotations

import re
from typing import Any

import pytest
from apache_beam.transforms.display import DisplayData

from rmqio import ClientOptions, FileCredentials, Security, Tls, WriteDeadLetters, WriteOptions, WriteToRocketMQ
from rmqio.client.factory import RemotingClientFactory
from rmqio.errors import LocalError
from rmqio.options import option_names
from rmqio.testing import InMemoryClientFactory

AT = "h:9876"
MEMORY = InMemoryClientFactory("nowhere")
SIGNED = Security(FileCredentials("/a/file"), Tls(insecure=True))
# Options that a write gives its client, with a value that is not the default, and what the option needs beside it.
CLIENT: dict[str, Any] = {
    "request_timeout_ms": 1,
    "max_retries": 2,
    "busy_timeout_ms": 8,
    "name_server_poll_interval_ms": 4,
    "broker_heartbeat_interval_ms": 5,
    "namespace": "n",
    "vip_channel": True,
    "compress_over_bytes": 6,
    "compression": "zstd",
    "compression_level": 7,
    "create_topics": True,
    "client_id_prefix": "p",
    "unit_name": "u",
    "name_server": AT,
    "security": SIGNED,
}
OF_THE_WRITE = {
    "batch_flush", "max_batch_messages", "max_batch_bytes", "asynchronous", "max_in_flight", "max_total_bytes",
    "max_wait_ms", "trace",
}  # fmt: skip


def test_every_option_is_the_clients_or_the_writes() -> None:
    assert set(option_names(WriteOptions)) == CLIENT.keys() | OF_THE_WRITE | {"producer_group"}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"name_server": AT}, "name_server"),
        ({"security": SIGNED}, "security"),
        *(
            (
                {"options": WriteOptions(**{"compress_over_bytes": 6} | {name: value})},
                "WriteOptions.compress_over_bytes",
            )
            for name, value in CLIENT.items()
            if name.startswith("compression")
        ),
        *(
            ({"options": WriteOptions(**{name: value})}, f"WriteOptions.{name}")
            for name, value in CLIENT.items()
            if not name.startswith("compression")
        ),
    ],
)
def test_what_a_factory_knows_is_not_said_beside_it(given: dict[str, Any], what: str) -> None:
    message = rf"^{what} and client_factory are both given; the factory knows its [a-z ]+ already"
    for make in (WriteToRocketMQ, WriteDeadLetters):
        with pytest.raises(LocalError, match=message):
            make("t", client_factory=MEMORY, **given)


def test_how_batches_are_made_is_said_beside_a_factory() -> None:
    options = WriteOptions(asynchronous=True, max_in_flight=3, max_batch_messages=5, producer_group="g")
    WriteToRocketMQ("t", client_factory=MEMORY, options=options)
    WriteDeadLetters("t", client_factory=MEMORY)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_in_flight": 3}, "max_in_flight=3 does nothing without asynchronous=True"),
        ({"compression": "lz4"}, "compression='lz4' does nothing without compress_over_bytes"),
        ({"compression_level": 9}, "compression_level=9 does nothing without compress_over_bytes"),
        ({"max_batch_messages": 2, "batch_flush": False}, "max_batch_messages=2 does nothing without batch_flush=True"),
        ({"max_batch_bytes": 200, "batch_flush": False}, "max_batch_bytes=200 does nothing without batch_flush=True"),
        ({"max_wait_ms": 200, "batch_flush": False}, "max_wait_ms=200 does nothing without batch_flush=True"),
        ({"max_total_bytes": 1 << 20, "batch_flush": False}, "max_total_bytes=1048576 does nothing without batch_f"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=re.escape(f"WriteOptions.{message}")):
        WriteToRocketMQ("t", name_server=AT, options=WriteOptions(**options))


def test_a_client_is_told_all_of_it() -> None:
    factory = WriteToRocketMQ("t", options=WriteOptions(**CLIENT))._backend_factory()
    assert isinstance(factory, RemotingClientFactory)
    assert factory.options == ClientOptions(
        AT,
        request_timeout_ms=1,
        max_retries=2,
        busy_timeout_ms=8,
        route_refresh_ms=4,
        heartbeat_ms=5,
        namespace="n",
        vip_channel=True,
        compress_over_bytes=6,
        compression="zstd",
        compression_level=7,
        create_topics=True,
        client_id_prefix="p",
        unit_name="u",
        security=SIGNED,
    )


def test_display_data_has_what_is_not_default_and_no_secret() -> None:
    items = DisplayData.create_from(WriteToRocketMQ("t", options=WriteOptions(**CLIENT))).items
    shown = {item.key: item.value for item in items}
    for name, value in CLIENT.items():
        assert shown[name] == ("credentials by FileCredentials, TLS, not verified" if name == "security" else value)
    assert "/a/file" not in str(shown)
    plain = {item.key for item in DisplayData.create_from(WriteToRocketMQ("t", name_server=AT)).items}
    assert not plain & (CLIENT.keys() - {"name_server", "request_timeout_ms", "max_retries"})
