"""Options: checked when made, with messages that name field, value and remedy; the keys of the Flink connector."""

from __future__ import annotations

import inspect
import logging
import pickle
import re
from dataclasses import replace
from typing import Any

import pytest

from rmqio.errors import LocalError
from rmqio.options import (
    ClientOptions,
    ReadOptions,
    WriteOptions,
    option_names,
    parse_name_server,
)


def client(**changes: Any) -> ClientOptions:
    return ClientOptions("h:9876", **changes)


MAKERS: dict[type, Any] = {ClientOptions: client, ReadOptions: ReadOptions, WriteOptions: WriteOptions}

# options class, fields that must be at least 1, fields that may be 0
WHOLE_NUMBERS = [
    (
        ClientOptions,
        "request_timeout_ms connect_timeout_ms route_refresh_ms heartbeat_ms retry_backoff_ms retry_backoff_max_ms "
        "pull_depth pull_batch long_poll_ms max_in_flight",
        "max_retries",
    ),
    (
        ReadOptions,
        "max_records_per_bundle max_bundle_ms poll_timeout_ms pull_batch pull_depth name_server_poll_interval_ms "
        "broker_heartbeat_interval_ms request_timeout_ms max_num_records",
        "discovery_interval_ms offset_commit_interval_ms max_out_of_orderness_ms idle_timeout_ms",
    ),
    (
        WriteOptions,
        "max_batch_messages max_batch_bytes max_in_flight request_timeout_ms name_server_poll_interval_ms "
        "broker_heartbeat_interval_ms",
        "max_retries",
    ),
]
FIELDS = [
    (cls, name, least)
    for cls, positive, zero in WHOLE_NUMBERS
    for names, least in ((positive, 1), (zero, 0))
    for name in names.split()
]


@pytest.mark.parametrize(("cls", "name", "least"), FIELDS)
def test_the_least_value_of_a_number_is_taken_and_one_below_is_refused(cls: type, name: str, least: int) -> None:
    assert getattr(MAKERS[cls](**{name: least}), name) == least
    expected = f"{cls.__name__}.{name} is {least - 1}; it must be a whole number of at least {least}"
    with pytest.raises(LocalError, match=re.escape(expected)):
        MAKERS[cls](**{name: least - 1})


@pytest.mark.parametrize("value", [1.5, "3", True, None])
@pytest.mark.parametrize(("cls", "name"), [row[:2] for row in FIELDS])
def test_what_is_not_a_whole_number_is_refused(cls: type, name: str, value: object) -> None:
    if name == "max_num_records" and value is None:
        pytest.skip("None means no limit")
    with pytest.raises(LocalError, match=re.escape(f"{cls.__name__}.{name} is {value!r}")):
        MAKERS[cls](**{name: value})


@pytest.mark.parametrize(
    ("cls", "changes", "message"),
    [
        (ReadOptions, {"new_queue_start": "newest"}, "ReadOptions.new_queue_start is 'newest'; .*'earliest', 'latest'"),
        (ReadOptions, {"on_offset_out_of_range": "skip"}, "on_offset_out_of_range is 'skip'.*'fail', 'earliest'"),
        (ReadOptions, {"on_timestamp_after_end": None}, "on_timestamp_after_end is None"),
        (WriteOptions, {"max_batch_messages": 4097}, "max_batch_messages is 4097; at most 4096"),
        (WriteOptions, {"max_batch_bytes": 1048577}, "max_batch_bytes is 1048577; at most 1048576"),
    ],
)
def test_a_bad_choice_is_refused_by_name_and_value(cls: type, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        MAKERS[cls](**changes)


def test_the_caps_of_a_batch_are_inclusive() -> None:
    options = WriteOptions(max_batch_messages=4096, max_batch_bytes=1 << 20)
    assert (options.max_batch_messages, options.max_batch_bytes) == (4096, 1 << 20)


@pytest.mark.parametrize("cls", MAKERS)
def test_options_are_frozen_hashable_and_picklable(cls: type) -> None:
    options = MAKERS[cls]()
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options) == hash(MAKERS[cls]())
    with pytest.raises(AttributeError):
        options.request_timeout_ms = 5


def documented(cls: type) -> list[str]:
    """The options that have an entry among the `Args` of a class."""
    entries = re.findall(r"^  ([a-z_, \n]+): ", inspect.getdoc(cls) or "", flags=re.M)
    return [name for entry in entries for name in re.findall(r"[a-z_]+", entry)]


@pytest.mark.parametrize("cls", MAKERS)
def test_docs_have_an_entry_for_every_option(cls: type) -> None:
    assert sorted(documented(cls)) == sorted(option_names(cls))


# ---- name server ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("h:9876", ("h:9876",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 ; b:2 ;", ("a:1", "b:2")),
        ("a:1,b:2", ("a:1", "b:2")),
        ("http://a:1", ("a:1",)),
        (("a:1", "b:2"), ("a:1", "b:2")),
        (["[::1]:9876"], ("[::1]:9876",)),
    ],
)
def test_name_servers_are_parsed(value: Any, addresses: tuple[str, ...]) -> None:
    assert parse_name_server(value) == addresses
    assert ClientOptions(value).name_servers == addresses


@pytest.mark.parametrize("value", ["h", "h:", ":9876", "h:x", "h:0", "h:65536", "h:-1", "a:1;b"])
def test_an_address_without_host_or_port_is_refused_by_name(value: str) -> None:
    with pytest.raises(LocalError, match=re.escape(repr(value.split(";")[-1]))):
        parse_name_server(value)


@pytest.mark.parametrize("value", ["", " ; ", (), []])
def test_no_address_at_all_is_refused(value: Any) -> None:
    with pytest.raises(LocalError, match="name_server is empty"):
        parse_name_server(value)


def test_none_means_the_environment_variable_of_rocketmqs_own_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert parse_name_server(None) == ("a:1", "b:2")
    assert ClientOptions(None).name_servers == ("a:1", "b:2")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_the_error_tells_both_ways(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    if value is not None:
        monkeypatch.setenv("NAMESRV_ADDR", value)
    with pytest.raises(LocalError, match=r"name_server='host:9876'.*NAMESRV_ADDR"):
        parse_name_server(None)


# ---- properties of the Flink connector ------------------------------------------------------------------------------

# key, text, the option it sets on the read (None: it is of the other side), and on the write
PROPERTIES: list[tuple[str, str, tuple[str, Any] | None, tuple[str, Any] | None]] = [
    ("nameserver.address", "h:9876", ("name_server", "h:9876"), ("name_server", "h:9876")),
    ("nameserver.poll.interval", "5", ("name_server_poll_interval_ms", 5), ("name_server_poll_interval_ms", 5)),
    ("brokerserver.heartbeat.interval", "6", ("broker_heartbeat_interval_ms", 6), ("broker_heartbeat_interval_ms", 6)),
    ("producer.group", "pg", None, ("producer_group", "pg")),
    ("producer.retry.times", "7", None, ("max_retries", 7)),
    ("producer.timeout", "8", None, ("request_timeout_ms", 8)),
    ("consumer.group", "cg", ("consumer_group", "cg"), None),
    ("consumer.topic", "t", ("topic", "t"), None),
    ("consumer.tag", "a || b", ("tags", "a || b"), None),
    ("consumer.offset.persist.interval", "9", ("offset_commit_interval_ms", 9), None),
    ("consumer.batch.size", "10", ("pull_batch", 10), None),
]
# key, and the defaults that the connector's versions have had
WITHOUT_EFFECT = [("consumer.pull.thread.pool.size", ("20",)), ("consumer.delay.when.message.not.found", ("10", "100"))]
ROWS = [
    (cls, key, text, effect)
    for key, text, read, write in PROPERTIES
    for cls, effect in ((ReadOptions, read), (WriteOptions, write))
]


@pytest.mark.parametrize(("cls", "key", "text", "effect"), ROWS)
def test_a_property_sets_its_option_or_warns_that_it_is_of_the_other_side(
    cls: Any, key: str, text: str, effect: tuple[str, Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rmqio"):
        options = cls.from_properties({key: f" {text} "})
    if effect is None:
        assert options == cls()
        assert len(caplog.records) == 1
        assert repr(key) in caplog.text
        assert "no effect" in caplog.text
    else:
        name, value = effect
        assert options == replace(cls(), **{name: value})
        assert caplog.records == []


def test_all_properties_at_once_serve_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    properties = {key: text for key, text, _, _ in PROPERTIES} | {key: texts[0] for key, texts in WITHOUT_EFFECT}
    read, write = ReadOptions.from_properties(properties), WriteOptions.from_properties(properties)
    assert (read.consumer_group, read.pull_batch, read.topic) == ("cg", 10, "t")
    assert (write.producer_group, write.max_retries, write.request_timeout_ms) == ("pg", 7, 8)
    assert read.name_server == write.name_server == "h:9876"


@pytest.mark.parametrize(("key", "defaults"), WITHOUT_EFFECT)
def test_a_property_without_effect_is_refused_unless_it_has_its_default(
    key: str, defaults: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rmqio"):
        for text in defaults:
            assert ReadOptions.from_properties({key: text}) == ReadOptions()
    assert caplog.records == []
    with pytest.raises(LocalError, match=rf"property '{key}' is '7', but does nothing here: .*\. Remove it"):
        ReadOptions.from_properties({key: "7"})


def test_no_properties_mean_the_defaults() -> None:
    assert ReadOptions.from_properties({}) == ReadOptions()
    assert WriteOptions.from_properties({}) == WriteOptions()


@pytest.mark.parametrize(
    ("cls", "key", "nearest"),
    [
        (ReadOptions, "consumer.grup", "consumer.group"),
        (ReadOptions, "nameserver.adress", "nameserver.address"),
        (WriteOptions, "producer.retry.time", "producer.retry.times"),
        (WriteOptions, "producer.retries", "producer.retry.times"),
    ],
)
def test_an_unknown_property_is_refused_naming_the_nearest(cls: Any, key: str, nearest: str) -> None:
    with pytest.raises(LocalError, match=re.escape(f"unknown property {key!r}; the nearest known one is {nearest!r}")):
        cls.from_properties({key: "1"})


def test_a_property_unlike_any_is_still_refused_by_name() -> None:
    with pytest.raises(LocalError, match="unknown property '\\?'"):
        ReadOptions.from_properties({"?": "1"})


@pytest.mark.parametrize(
    ("cls", "key", "text", "message"),
    [
        (ReadOptions, "consumer.batch.size", "many", "'consumer.batch.size' is 'many'; it must be a whole number"),
        (ReadOptions, "consumer.pull.thread.pool.size", "x", "'consumer.pull.thread.pool.size' is 'x'"),
        (WriteOptions, "producer.timeout", "1.5", "'producer.timeout' is '1.5'"),
        (ReadOptions, "consumer.batch.size", "0", "ReadOptions.pull_batch is 0"),
    ],
)
def test_a_property_with_a_bad_number_is_refused(cls: Any, key: str, text: str, message: str) -> None:
    with pytest.raises(LocalError, match=re.escape(message)):
        cls.from_properties({key: text})
