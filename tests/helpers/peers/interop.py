"""Java's official client beside ours: the clients exchange messages, and every field is compared."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import pytest

from bench.common.jvm import compile_java, find_jdk, java_command
from bench.common.process import LineProcess
from bench.common.tally import BenchError
from rmqio.client.factory import RemotingClientFactory
from rmqio.model import Message, MessageFilter, Record
from rmqio.wire.bodies import COMPRESSED
from rmqio.wire.stored import INNER_BATCH
from tests.helpers.waiting import until

_compiled: dict[str, str] = {}
END: Final = "the-end"
SOURCE = Path(__file__).resolve().parent / "java" / "Interop.java"


class JavaClient:
    """The official client as one long-lived process."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    def send(
        self, topic: str, messages: Sequence[Mapping[str, Any]], mode: str = "single", compression: str | None = None
    ) -> list[dict[str, Any]]:
        command = {"do": "send", "topic": topic, "mode": mode, "messages": messages, "compression": compression}
        return list(self._process.ask(json.dumps(command))["results"])

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Sends another command to Interop.java."""
        return self._process.ask(json.dumps({"do": do, **arguments}))

    def consume(self, topic: str, count: int, tags: str | None = None) -> list[dict[str, Any]]:
        """Returns the messages, sorted by queue and offset."""
        command = {"do": "consume", "topic": topic, "count": count, "filter": tags}
        found = self._process.ask(json.dumps(command))["messages"]
        return sorted(found, key=lambda m: (m["queueId"], m["queueOffset"]))

    def queues_of_keys(self, topic: str, keys: Sequence[str]) -> list[str]:
        return list(self._process.ask(json.dumps({"do": "queues_of_keys", "topic": topic, "keys": keys}))["queues"])


@contextmanager
def java_client(name_server: str, folder: Path) -> Iterator[JavaClient]:
    """Compiles and starts the client. Skips the test if there is no JDK."""
    try:
        jdk = find_jdk()
    except BenchError as error:
        pytest.skip(f"no JDK: {error}")
    if "interop" not in _compiled:  # once for all modules of a session
        _compiled["interop"] = compile_java(jdk, SOURCE, folder / "classes")
    class_path = _compiled["interop"]
    command = java_command(jdk, class_path, folder, "Interop", [name_server])
    with LineProcess("the Java client", command, folder / "java.log", cwd=folder) as process:
        yield JavaClient(process)


def read(factory: RemotingClientFactory, topic: str, count: int, tags: str = "*", *, begin: int = 0) -> list[Record]:
    """Returns what our client sees: `count` messages of all queues from an offset on, sorted by queue and offset."""
    with closing(factory.queue_client()) as client:
        readers = [client.open_reader(q, begin, message_filter=MessageFilter(tags)) for q in client.queues(topic)]
        records: list[Record] = []

        def are_read() -> bool:
            client.wait(readers, 200)
            for reader in readers:
                while (fetched := reader.poll()) is not None:
                    assert not fetched.corrupt
                    records.extend(fetched.records)
            return len(records) >= count

        until(are_read, f"{count} messages", progress=lambda: len(records), details=lambda: records, pause_s=0)
    return sorted(records, key=lambda r: (r.queue_id, r.queue_offset))


def read_all(factory: RemotingClientFactory, topic: str) -> list[Record]:
    """Returns all that the broker has stored by now: what comes before an end, which this sends to each queue."""
    with closing(factory.producer("ends")) as producer:
        sent = [producer.send(Message(b"end", topic=topic, tags=END), queue) for queue in producer.queues(topic)]
    records = read(factory, topic, sum(end.queue_offset + 1 for end in sent))
    return [record for record in records if record.tags != END]


def java_fields(record: Record) -> dict[str, Any]:
    """Returns a record with the field names of Java's MessageExt, as Interop.java prints them."""
    return {
        "brokerName": record.broker,
        "queueId": record.queue_id,
        "storeSize": record.stored_size,
        "queueOffset": record.queue_offset,
        "sysFlag": record.sys_flag & ~COMPRESSED,  # Java clears it when it decompresses; a Record has it as stored
        "bornTimestamp": record.born_timestamp_ms,
        "bornHost": record.born_host,
        "storeTimestamp": record.store_timestamp_ms,
        "storeHost": record.store_host,
        "msgId": record.message_id,
        "offsetMsgId": record.offset_message_id,
        "commitLogOffset": record.commit_log_offset,
        "bodyCRC": record.body_crc,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "topic": record.topic,
        "flag": record.flag,
        "tags": record.tags,
        "keys": " ".join(record.keys) or None,
        "shardingKey": record.sharding_key,
        "body": base64.b64encode(record.body).decode(),
        "properties": record.properties,
        "uniqueId": record.get_property("UNIQ_KEY"),
    }


def _shortest(address: str) -> str:
    """Returns an address in its shortest form. Java writes IPv6 addresses in full, `0:0:0:0:0:0:0:1:port`."""
    host, _, port = address.rpartition(":")
    return f"[{ip_address(host)}]:{port}" if ":" in host else address


LEFT_OUT_IN_INNER_BATCHES = ("storeSize", "offsetMsgId", "bodyCRC")
"""Fields that Java's consumer does not set in the members of an inner batch. Our client does."""


def same_for_both(java: JavaClient, factory: RemotingClientFactory, topic: str, count: int) -> list[Record]:
    """Reads with both clients and compares every field of every message. Returns our records."""
    records = read(factory, topic, count)
    assert len(records) == count
    theirs = java.consume(topic, count)
    assert len(theirs) == count
    for record, message in zip(records, theirs, strict=True):
        ours = java_fields(record)
        for name in ("bornHost", "storeHost"):
            message[name] = _shortest(message[name])
        if record.sys_flag & INNER_BATCH:
            for name in LEFT_OUT_IN_INNER_BATCHES:
                assert not message.pop(name, None)
                del ours[name]
            if "WAIT" not in ours["properties"]:
                assert message["properties"].pop("WAIT") == "true"  # Java's consumer adds it
        # Java's JSON omits null.
        differing = {name: (ours[name], message.get(name)) for name in ours if ours[name] != message.get(name)}
        assert differing == {}, "field: (ours, Java's)"
        assert ours.keys() >= message.keys()
    return records


def given(body: bytes, **fields: Any) -> dict[str, Any]:
    """Returns a message for Interop.java."""
    return {"body": base64.b64encode(body).decode(), **fields}
