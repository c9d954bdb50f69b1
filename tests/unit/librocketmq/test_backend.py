"""`backend="librocketmq"` without the library: what is refused, and what is said when it is missing."""

from __future__ import annotations

import _ctypes
import pickle
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.display import DisplayData

from rmqio.client.client import RemotingQueueClient
from rmqio.errors import LocalError, RequestTimeout, TransportError
from rmqio.interfaces import ClientFactory
from rmqio.librocketmq import LibrocketmqClientFactory, library
from rmqio.librocketmq.producer import PendingMessages, _prepare
from rmqio.model import Message, MessageQueue, SendResult
from rmqio.options import ClientOptions, WriteOptions
from rmqio.security import EnvironmentCredentials, Security, Tls
from rmqio.testing import InMemoryClientFactory
from rmqio.transforms.write import WriteToRocketMQ
from tests.helpers.waiting import at_most

NAME_SERVER = "127.0.0.1:9876"


# ---- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"connect_timeout_ms": 1_000}, "connect_timeout_ms=1000"),
        ({"heartbeat_ms": 1_000}, "heartbeat_ms=1000"),
        ({"vip_channel": True}, "vip_channel=True"),
        ({"create_topics": True}, "create_topics=True"),
        ({"compress_over_bytes": 1, "compression": "zstd"}, "compression='zstd'"),
        ({"security": Security(tls=Tls())}, "Security.tls"),
        ({"security": Security(address_map={"a:1": "b:2"})}, "Security.address_map"),
        ({"security": Security(allowed_addresses=["10.0.0.0/8"])}, "Security.allowed_addresses"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_options_that_the_library_cannot_honour_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(LocalError, match="backend 'librocketmq' does not support") as refused:
        LibrocketmqClientFactory(ClientOptions(NAME_SERVER, **options))
    assert named in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd"},  # which nothing asks for
        {"compress_over_bytes": 4_096, "compression_level": 9},
        {"request_timeout_ms": 1, "max_retries": 0, "max_in_flight": 1, "namespace": "n", "route_refresh_ms": 1},
        {"pull_depth": 1, "outage_timeout_ms": 1},  # of reading, which the remoting client does
        {"security": Security(EnvironmentCredentials())},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_factory_pickles_and_equal_ones_are_equal(options: dict[str, Any]) -> None:
    factory, again = (LibrocketmqClientFactory(ClientOptions(NAME_SERVER, **options)) for _ in range(2))
    assert pickle.loads(pickle.dumps(factory)) == factory == again
    assert hash(factory) == hash(again)
    assert factory != LibrocketmqClientFactory(ClientOptions("127.0.0.1:1"))
    assert isinstance(factory, ClientFactory)


def test_it_reads_by_the_remoting_client() -> None:
    client = LibrocketmqClientFactory(ClientOptions(NAME_SERVER)).queue_client()
    assert isinstance(client, RemotingQueueClient)
    client.close()


# ---- the transform ---------------------------------------------------------------------------------------------------


def test_the_transform_refuses_what_does_not_fit() -> None:
    with pytest.raises(LocalError, match="backend is 'native'; it must be 'remoting' or 'librocketmq'"):
        WriteToRocketMQ("t", name_server=NAME_SERVER, backend="native")  # type: ignore[arg-type]
    factory = InMemoryClientFactory("librocketmq")
    with pytest.raises(LocalError, match="backend='librocketmq' and client_factory are both given"):
        WriteToRocketMQ("t", client_factory=factory, backend="librocketmq")


def test_the_transform_refuses_options_before_anything_runs() -> None:
    write = WriteToRocketMQ(
        "t", name_server=NAME_SERVER, backend="librocketmq", options=WriteOptions(broker_heartbeat_interval_ms=1)
    )
    with pytest.raises(LocalError, match="broker_heartbeat_interval_ms"):
        beam.Pipeline() | beam.Create([b"x"]) | write


def test_the_display_data_shows_the_backend() -> None:
    def shown(write: WriteToRocketMQ) -> dict[str, Any]:
        return {item.key: item.value for item in DisplayData.create_from(write).items}

    write = WriteToRocketMQ("t", name_server=NAME_SERVER, backend="librocketmq")
    assert shown(write)["backend"] == "librocketmq"
    assert shown(WriteToRocketMQ("t", name_server=NAME_SERVER))["backend"] == "remoting"
    assert "backend" not in shown(WriteToRocketMQ("t", client_factory=InMemoryClientFactory("librocketmq")))


# ---- where the library is, and what it lacks -------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str | None], None]]:
    """Puts a module `rocketmq` in front of all others, with this `ffi` (None: without), and a library beside it."""
    package = tmp_path / "rocketmq"

    def put(ffi: str | None) -> None:
        package.mkdir()
        (package / "__init__.py").touch()
        if ffi is not None:
            (package / "ffi.py").write_text(ffi)
        (package / "librocketmq.so").symlink_to(_ctypes.__file__)  # any shared library will do

    for name in [name for name in sys.modules if name.partition(".")[0] == "rocketmq"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(library, "_loaded", None)
    monkeypatch.syspath_prepend(tmp_path)
    yield put
    for name in [name for name in sys.modules if name.partition(".")[0] == "rocketmq"]:
        del sys.modules[name]


_FFI = """
import ctypes, os
dll = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "librocketmq.so"))
dll.PyInit__ctypes.argtypes = []
"""


def test_without_the_module_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_loaded", None)
    monkeypatch.setattr(sys, "path", [])
    for name in [name for name in sys.modules if name.partition(".")[0] == "rocketmq"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if "editable" not in repr(finder)])
    factory = LibrocketmqClientFactory(ClientOptions(NAME_SERVER))
    with pytest.raises(LocalError, match=r"`rocketmq` is not installed; install rocketmq==0\.4\.4"):
        factory.producer("g")


def test_another_clients_module_is_told_apart(module: Callable[[str | None], None]) -> None:
    module(None)
    with pytest.raises(LocalError, match=r"belongs to another client .*can be installed; install rocketmq="):
        library.load()


@pytest.mark.parametrize(
    "failure",
    ["ImportError('rocketmq dynamic library not found')", "OSError('wrong ELF class')", "NotImplementedError"],
)
def test_a_library_that_does_not_load_is_reported(module: Callable[[str | None], None], failure: str) -> None:
    module(f"raise {failure}")
    with pytest.raises(LocalError, match=r"its library cannot be loaded .*install rocketmq==0\.4\.4"):
        library.load()


def test_functions_that_the_module_needs_and_the_library_lacks_are_named(module: Callable[[str | None], None]) -> None:
    names = [
        "CreateOrderlyProducer", "SendMessageOrderlyByShardingKey", "CreateTransactionProducer",
        "SendMessageTransaction",
    ]  # fmt: skip
    module(_FFI + "".join(f"dll.{name}.argtypes = []\ndll.{name}.restype = None\n" for name in names))
    with pytest.raises(LocalError) as missing:
        library.load()
    assert "needs 4 functions that the library at " in str(missing.value)
    assert f"lacks: {', '.join(names)}. The library inside rocketmq 0.4.4 lacks them too" in str(missing.value)


OTHER_MODULES_FUNCTIONS = """
AddMessage CreateBatchMessage CreateMessage CreateOrderlyProducer CreateProducer CreatePushConsumer
CreateTransactionProducer DestroyBatchMessage DestroyMessage DestroyProducer DestroyPushConsumer
GetLatestErrorMessage GetMessageBody GetMessageBornTimestamp GetMessageCommitLogOffset GetMessageDelayTimeLevel
GetMessageId GetMessageKeys GetMessagePreparedTransactionOffset GetMessageProperty GetMessageQueueId
GetMessageQueueOffset GetMessageReconsumeTimes GetMessageStoreSize GetMessageStoreTimestamp GetMessageTags
GetMessageTopic GetPushConsumerGroupID RegisterMessageCallback RegisterMessageCallbackOrderly SendBatchMessage
SendMessageOneway SendMessageOrderlyByShardingKey SendMessageSync SendMessageTransaction SetByteMessageBody
SetDelayTimeLevel SetMessageBody SetMessageKeys SetMessageProperty SetMessageTags SetProducerCompressLevel
SetProducerGroupName SetProducerInstanceName SetProducerLogFileNumAndSize SetProducerLogLevel SetProducerLogPath
SetProducerMaxMessageSize SetProducerNameServerAddress SetProducerNameServerDomain SetProducerSendMsgTimeout
SetProducerSessionCredentials SetPushConsumerGroupID SetPushConsumerInstanceName SetPushConsumerLogFileNumAndSize
SetPushConsumerLogLevel SetPushConsumerLogPath SetPushConsumerMessageBatchMaxSize SetPushConsumerMessageModel
SetPushConsumerNameServerAddress SetPushConsumerNameServerDomain SetPushConsumerSessionCredentials
SetPushConsumerThreadCount ShutdownProducer ShutdownPushConsumer StartProducer StartPushConsumer Subscribe
UnregisterMessageCallback UnregisterMessageCallbackOrderly
"""
"""Functions that the module of rocketmq-client-python 2.0.0 declares when it is imported."""


def test_what_the_page_says_of_the_library_in_the_wheel() -> None:
    """The page names the functions of the other distribution's module that the real library lacks."""
    ffi = pytest.importorskip("rocketmq.ffi", reason="the library needs the extra 'native'")
    missing = library.missing_functions(ffi.dll, OTHER_MODULES_FUNCTIONS.split())
    text = (Path(__file__).parents[3] / "docs" / "librocketmq.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"lacks\s+(\w+)\s+of\s+the\s+C\s+functions\s+that\s+it\s+needs:([^.]*)\.", text)
    assert said[0] == {3: "three", 4: "four", 5: "five"}[len(missing)]
    assert sorted(re.findall(r"`(\w+)`", said[1])) == sorted(missing)


def test_functions_that_we_need_and_the_library_lacks_are_named(module: Callable[[str | None], None]) -> None:
    module(_FFI)
    with pytest.raises(LocalError, match="lacks required functions: CreateProducer, SetProducerLogLevel"):
        library.load()


# ---- what is sent ----------------------------------------------------------------------------------------------------


def test_the_id_stands_behind_the_librarys_own() -> None:
    body, properties, message_id = _prepare(Message(b"x", tags="t", properties={"a": "1", "zé": "2"}), "MINE")
    assert (body, message_id) == (b"x", "MINE")
    written = sorted(dict([*properties, (b"UNIQ_KEY", b"THE-LIBRARYS")]).items())  # as the library does
    items = b"".join(name + b"\x01" + value + b"\x02" for name, value in written).split(b"\x02")
    ids = [item for item in items if item.startswith(b"UNIQ_KEY\x01")]
    assert ids == [b"UNIQ_KEY\x01THE-LIBRARYS", b"UNIQ_KEY\x01MINE"]
    assert {item for item in items if b"\x01" in item} - set(ids) == {b"TAGS\x01t", b"a\x011", "zé\x012".encode()}


def test_a_character_that_would_cut_a_property_is_refused() -> None:
    with pytest.raises(LocalError, match="the character 0"):
        _prepare(Message(b"\x00", properties={"a": "b\x00"}), "ID")
    assert _prepare(Message(b"\x00"), "ID")[0] == b"\x00"


# ---- messages on their way -------------------------------------------------------------------------------------------

QUEUE = MessageQueue("t", "b", 0)


def test_a_pending_send_gives_what_its_thread_gave_or_raised() -> None:
    result = SendResult(QUEUE, 0, "ID", "")
    stored = PendingMessages(QUEUE, 1, lambda: [result])
    stored.start()
    assert stored.result() == [result]
    assert (stored.is_done(), stored.is_retrieved, stored.error) == (True, True, None)

    def fail() -> list[SendResult]:
        raise TransportError("down")

    failed = PendingMessages(QUEUE, 1, fail)
    failed.start()
    failed.settle()
    assert isinstance(failed.error, TransportError)
    assert not failed.is_retrieved
    behind = PendingMessages(QUEUE, 1, lambda: [result])
    behind.fail_like(failed)
    behind.start()
    for pending in (failed, behind):
        with pytest.raises(TransportError, match="down"):
            pending.result()
    after = PendingMessages(QUEUE, 1, lambda: [result])
    after.fail_like(stored)
    after.start()
    assert after.result() == [result]


def test_who_closes_waits_until_a_deadline_and_what_comes_later_does_not_count() -> None:
    go, gone = threading.Event(), threading.Event()

    def late() -> list[SendResult]:
        go.wait(at_most(60))
        gone.set()
        return []

    pending = PendingMessages(QUEUE, 2, late)
    pending.start()
    pending.settle(time.monotonic())
    go.set()
    assert gone.wait(at_most(60))
    with pytest.raises(RequestTimeout, match="send of 2 messages to queue t/b/0"):
        pending.result()
