"""What rmqio leaves at rest as bytes: what is put in, and how it is written and read.

It lies in checkpoints, topics, files and offsets of Spark. A text stands for itself; ids, by which copies are known
again after a restart, are things that are only written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from apache_beam.coders import BytesCoder, StrUtf8Coder, VarIntCoder
from apache_beam.transforms.window import FixedWindows, IntervalWindow
from apache_beam.utils.windowed_value import WindowedValue

from rmqio import Batch, Message, MessageQueue, Record, SendResult, StartFrom, StopAt
from rmqio.audit import sketch, transform
from rmqio.batches import place_ids, record_id
from rmqio.claims import check
from rmqio.connect.copying.job import KeyId
from rmqio.connect.kafka import records as kafka_messages
from rmqio.connect.kafka.consumers import Partition
from rmqio.connect.kafka.read import PartitionWatermarks, Seen, SeenCoder
from rmqio.connect.kafka.records import KafkaRecord, KafkaRecordCoder
from rmqio.dead_letters.letters import Failed, letter_id, make_letter, read_letter
from rmqio.jobs.state import Status
from rmqio.model import SendStatus
from rmqio.pyspark.progress import Position
from rmqio.rules.correlation import Correlated, CorrelatedCoder
from rmqio.rules.engine import Matcher, compile_rules
from rmqio.rules.formats import json_rules
from rmqio.rules.formats.base import RuleText
from rmqio.rules.transform import Match, MatchCoder, MatchedMessage, MatchedMessageCoder
from rmqio.runners.spark.streaming import checkpoint, micro_batch
from rmqio.runners.spark.streaming.micro_batch import BatchHeader, Cuts, MicroBatch, PlannedOffset, SourcePlan
from rmqio.runners.spark.streaming.model import Learned
from rmqio.runners.spark.streaming.worker import BucketWatermarks
from rmqio.sending.batches import FailedMessage
from rmqio.skew.salted import PartCoder
from rmqio.sql.functions.operators import row_id
from rmqio.transforms.coders import (
    BatchCoder,
    FailedMessageCoder,
    MessageCoder,
    MessageQueueCoder,
    ReadFailureCoder,
    RecordBatchCoder,
    RecordCoder,
    SendResultCoder,
)
from rmqio.transforms.failures import ReadFailure
from rmqio.transforms.reading.discovery import Known, KnownCoder
from rmqio.transforms.reading.in_process import Subscribed, SubscribedCoder
from rmqio.transforms.reading.record_batches import RecordBatch
from rmqio.transforms.reading.restriction import (
    QueueDescriptor,
    QueueDescriptorCoder,
    QueueRange,
    QueueRangeCoder,
    QueueWatermarks,
)
from rmqio.transforms.writing.elements import DefaultIds
from rmqio.wire import requests
from rmqio.wire.properties import encode_properties

T0: Final = 1_700_000_000_000
QUEUE, OTHER = MessageQueue("orders", "broker-a", 3), MessageQueue("größe", "broker-b", 0)
MESSAGE: Final = Message(
    b"\x00body\xff", topic="orders", tags="a", keys=("k1", "k2"), properties={"b": "2", "a": "ä"}, sharding_key="s",
    delay_level=3, deliver_at_ms=T0,
)  # fmt: skip
HOST: Final = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
RECORD: Final = Record(
    "orders", "broker-a", 3, 41, b"body", T0, T0 + 5, b"KEYS\x01k1 k2\x02UNIQ_KEY\x01A0\x02", 1, 2, 3, 4, 5, HOST, HOST,
    6, 200,
)  # fmt: skip
FAILURE: Final = ReadFailure(
    "orders",
    "broker-a",
    3,
    42,
    "A1",
    "k1",
    "a",
    T0,
    T0 + 5,
    "SerdeError",
    "no JSON",
    b"{",
    (("b", "2"),),
    "s",
    "stored",
)
LETTER: Final = Failed(
    b"{", "SerdeError", "no JSON", QUEUE, 42, "A1", T0, T0 + 5, "a", ("k1",), "s", (("b", "2"), ("RMQIO_T", "x"))
)
UNSENT: Final = Failed(b"x", "SendError", "no", sink_topic="out", sink_message_id="B2", delay_level=2)
REASONS: Final = (("amount", "gt", 5), ("name", "equals", "x"))
RULE: Final = """[
{"id": "r1", "title": "T", "level": "high", "tags": ["t"], "condition": {"all": [{"field": "a", "is": "equals", \
"value": "x"}, {"not": {"field": "n", "is": "greater", "value": 5}}]}},
{"id": "c", "title": "C", "correlation": \
{"kind": "event_count", "rules": ["r1"], "timespan_ms": 1000, "group_by": ["u"], "operator": "gte", "count": 2}}
]"""
PLAN: Final = SourcePlan(
    "Read", {"a": 1, "b": None}, {"b": (2, 3)}, has_ended=False, is_done=True, rows=7, lag={"t": 8}
)
BATCH: Final = MicroBatch(9, 1.5, "run", {"0": micro_batch.Position([1, 2])}, is_drained=False, sources={"0": PLAN})
CLAIM: Final = check.Reference.of(b"a big body", T0 / 1000)
SKETCH: Final = sketch.Sketch(
    sketch.Key("run", "Read", "orders", "broker-a", 3, 4096, T0, "1"),
    sketch.Hop("Read", 1, ("Before",)), sketch.Total(7, (1 << 64) - 9, 8, T0, T0 + 9),
)  # fmt: skip
HANDLE: Final = "djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDAgQTA="
"""Of a broker: `v1 orders broker-a 1700000000000 A0`."""


class Thing(NamedTuple):
    """A thing, and how it is written and read.

    Attributes:
      read: gives the value again, unless it `gives` something else; None: it is not read, as a hash.
      refused: what is said of the thing in the format of another version, as a regular expression; empty: it has none.
      other: the thing of another version, made of this one.
    """

    value: Any
    write: Callable[[Any], bytes | str]
    read: Callable[[Any], Any] | None = None
    refused: str = ""
    other: Callable[[Any], Any] = lambda kept: b"\x63" + kept[1:]
    gives: Any = None


def _coded(value: Any, coder: Any, refused: str = "") -> Thing:
    return Thing(value, coder.encode, coder.decode, refused)


def _version_99(name: str) -> str:
    return f"^these bytes are not one encoded {name}: version 99"


def _json(value: Any, write: Callable[[Any], Any], read: Callable[[Any], Any], *more: Any) -> Thing:
    return Thing(value, lambda made: json.dumps(write(made)), lambda kept: read(json.loads(kept)), *more)


def _stored(message: Message, message_id: str | None = None) -> Record:
    """Returns a message as it lies in a topic."""
    return RECORD._replace(body=message.body, raw_properties=encode_properties(message, message_id=message_id))


def _in_topic(message: Message) -> bytes:
    record = _stored(message)
    return record.raw_properties + b"\x03" + record.body


def _of_topic(kept: bytes) -> Record:
    properties, _, body = kept.partition(b"\x03")
    return RECORD._replace(body=body, raw_properties=properties)


def _sent_back(kept: Any) -> Any:
    """Returns what a dead letter says, without its record."""
    return read_letter(_of_topic(kept))[1:]


def _default_id(message: Message) -> str:
    window = IntervalWindow(0, 60)
    ids = DefaultIds("Write", "run", StrUtf8Coder(), FixedWindows(60).get_window_coder())
    return ids.id_of(("k", message), WindowedValue(("k", message), 1, (window,)), message, "out")


def _rules(text: str) -> Any:
    found = json_rules.parse([RuleText("rules.json", text)])
    return found.rules + found.correlations


def _begun(found: Any) -> Any:
    checkpoint.refuse_others("FOLDER", found, found["shape"], is_drained=False)
    return found


_BATCH: Final = BatchCoder(MessageCoder())
_KAFKA: Final = KafkaRecord(None, b"\xff", (("h", b"1"), ("h", None)), "t", 2, 3, T0)
_MATCH: Final = Match(RECORD, "r1", "T", "high", ("t",), "v1", REASONS)
_FAILED: Final = FailedMessage(MESSAGE, "element", "out", "SendError", "no", 5)
_DESCRIBED: Final = QueueDescriptor(
    QUEUE, StartFrom.specific_offsets({QUEUE: 7}, reset="earliest"), StopAt.timestamp(T0), 9
)
_CORRELATED: Final = Correlated("c", "T", "high", ("t",), (("user", "x"),), T0, T0 + 9, 3, ("r1", "r2"), "v1")
_POSITION: Final = Position({QUEUE: 41, OTHER: 7}, T0, frozenset({OTHER}), is_new=True, first={QUEUE: 1})

THINGS: Final[dict[str, Thing]] = {
    # ---- elements and restrictions in checkpoints
    "Record": _coded(RECORD, RecordCoder(), _version_99("Record")),
    "Message": _coded(MESSAGE, MessageCoder(), _version_99("Message")),
    "MessageQueue": _coded(QUEUE, MessageQueueCoder(), _version_99("MessageQueue")),
    "SendResult": _coded(
        SendResult(QUEUE, 7, "A0", "B0", SendStatus.FLUSH_DISK_TIMEOUT), SendResultCoder(), _version_99("SendResult")
    ),
    "SendResult, delayed": _coded(
        SendResult(OTHER, 7, "A0", "B0", SendStatus.OK, HANDLE), SendResultCoder(), _version_99("SendResult")
    ),
    "FailedMessage": _coded(_FAILED, FailedMessageCoder(), _version_99("FailedMessage")),
    "ReadFailure": _coded(FAILURE, ReadFailureCoder(), _version_99("ReadFailure")),
    "RecordBatch": _coded(
        RecordBatch([RECORD, RECORD], [T0, T0 + 1], [FAILURE]), RecordBatchCoder(), _version_99("RecordBatch")
    ),
    "Batch": _coded(Batch([MESSAGE, MESSAGE], QUEUE, range(5, 7), "/a"), _BATCH, _version_99("Batch")),
    "Batch of variants": _coded(
        Batch([MESSAGE, MESSAGE], QUEUE, (5, 5), "/a", ("x", "y")), _BATCH, _version_99("Batch")
    ),
    "KafkaRecord": _coded(_KAFKA, KafkaRecordCoder(), "^a Kafka record of version 99; this rmqio reads version 1$"),
    "Match": _coded(_MATCH, MatchCoder(), _version_99("Match")),
    "MatchedMessage": _coded(
        MatchedMessage(b"m", "v1", (_MATCH._replace(message=None),)),
        MatchedMessageCoder(),
        _version_99("MatchedMessage"),
    ),
    "Correlated": _coded(_CORRELATED, CorrelatedCoder()),
    "part of a salted combine": _coded((True, 7), PartCoder(BytesCoder(), VarIntCoder())),
    "QueueDescriptor": _coded(_DESCRIBED, QueueDescriptorCoder()),
    "QueueRange": _coded(
        QueueRange(5, 9, 3), QueueRangeCoder(), "^a queue range of version 99; this rmqio reads versions 1, 2$"
    ),
    "QueueRange that waits": _coded(QueueRange(5, waits_since_ms=T0), QueueRangeCoder(), "^a queue range takes 25"),
    "Known": _coded(Known([QUEUE], T0, [OTHER], [OTHER]), KnownCoder()),
    "Subscribed": _coded(Subscribed(Known([QUEUE], T0), ((QUEUE, QueueRange(5)),)), SubscribedCoder()),
    "Seen": _coded(Seen(frozenset({Partition("t", 1), Partition("t", 0)}), T0), SeenCoder()),
    "watermark of a queue": _coded(T0 * 1000, QueueWatermarks().estimator_state_coder()),
    "watermark of a partition": _coded((T0 * 1000, -1), PartitionWatermarks().estimator_state_coder()),
    # ---- checkpoints of Spark
    "PlannedOffset": _json(
        PlannedOffset(3, {"0": micro_batch.Position([1])}, {"0": None}, 1.5, "run", is_drained=True),
        PlannedOffset.to_json,
        PlannedOffset.from_json,
    ),
    "MicroBatch": Thing(BATCH, MicroBatch.encode, MicroBatch.decode),
    "BatchHeader": Thing(BatchHeader("run", 3, {"0": {"a": 1}}), BatchHeader.encode, BatchHeader.decode),
    "Cuts": _json(Cuts(3, {"0": {"a": 1}}), Cuts.to_json, Cuts.from_json),
    "Learned": Thing(Learned({"a": 1}, {"b": 2}), Learned.encode, Learned.decode),
    "BucketWatermarks": Thing(
        BucketWatermarks({"1": 5}, {"0": {"a": 6}}, {"0": {"a": 7}}), BucketWatermarks.encode, BucketWatermarks.decode
    ),
    "rmqio.json": _json(
        {"version": 3, "buckets": 2, "shape": ["source 0: Read"]},
        lambda found: found,
        _begun,
        "^FOLDER was written by another version of rmqio: it has format 99, .* or use another --checkpoint_dir$",
        lambda kept: kept.replace('"version": 3', '"version": 99'),
    ),
    "position of PySpark's format": _json(
        _POSITION,
        Position.as_json,
        Position.of,
        "^the checkpoint's offsets .* are not of the format rocketmq",
        lambda _: '{"(new)": true, "orders": 5}',
    ),
    # ---- topics
    "dead letter of a read": Thing(
        LETTER,
        lambda made: _in_topic(make_letter(made)),
        _sent_back,
        gives=(
            "orders",
            "SerdeError",
            "no JSON",
            Message(b"{", tags="a", keys=("k1",), properties={"b": "2", "RMQIO_T": "x"}, sharding_key="s"),
            "A3AD8CE595C16CEA5051236F0B77838B",
            "",
            True,
        ),
    ),
    "dead letter of a write": Thing(
        UNSENT,
        lambda made: _in_topic(make_letter(made)),
        _sent_back,
        gives=("out", "SendError", "no", Message(b"x", delay_level=2), "B2", "", True),
    ),
    "audit": Thing(
        SKETCH,
        sketch.encode,
        sketch.decode,
        "^a sketch of version 99; this is rmqio's version 1$",
        lambda kept: kept.replace(b'"version":1', b'"version":99'),
    ),
    "message of audit": Thing(transform.message_of(SKETCH.key.text(), SKETCH.hop, SKETCH.total), _in_topic),
    "claim": Thing(
        CLAIM,
        lambda made: _in_topic(check.with_reference(Message(b"", tags="a"), made, "gs://bucket/claims")),
        lambda kept: check.reference_of(_of_topic(kept), 1 << 30),
        "^claim check: the property RMQIO_CLAIM is '2 2023-11-14/.*it must be '1 DAY/SHA256 BYTES'$",
        lambda kept: kept.replace(b"RMQIO_CLAIM\x011 ", b"RMQIO_CLAIM\x012 "),
    ),
    "message of Kafka": Thing(
        KafkaRecord(None, b"\xff", (("h", b"1"), ("h", None)), timestamp_ms=5),
        lambda made: _in_topic(kafka_messages.message_of(made)),
    ),
    "handle of a delayed message": Thing(
        "broker-a",
        lambda _: HANDLE,
        requests.broker_of_handle,
        "^recall handle .* has an unknown version$",
        lambda _: "djIgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDAgQTA=",
    ),
    # ---- rules and jobs
    "rules": Thing(_rules(RULE), json_rules.dumps, _rules),
    "compiled rules": Thing(
        _rules(RULE)[:1],
        lambda made: compile_rules(made, engine="plain").dump(),
        lambda kept: Matcher.load(kept).rules,
        "^Matcher.load cannot read these bytes .*version 99, and this rmqio reads version 2. Dump the rules again",
        lambda kept: b"\x95\x63" + kept[2:],
    ),
    "status of a job": _json(Status("a", "running", 1.5, 2, 3, "e", "r", 0.5), asdict, lambda found: Status(**found)),
    # ---- ids of messages
    "ids of places": Thing((QUEUE, (5, 6), "/a"), lambda made: " ".join(place_ids(*made))),
    "ids of variants": Thing(Batch([1, 2], QUEUE, (5, 5), "/a", ("x", "x")), lambda made: " ".join(made.ids())),
    "id of a record": Thing(RECORD, record_id),
    "id of a firing": Thing(MESSAGE, _default_id),
    "id of a row": Thing(("a", 1, None, 1.5), lambda made: row_id(*made)),
    "id of a row of a copy": Thing({"k": "x", "n": 1}, KeyId("k")),
    "id of a letter": Thing(LETTER, lambda made: letter_id(make_letter(made))),
    "id of a letter without a place": Thing(LETTER._replace(origin=None), lambda made: letter_id(make_letter(made))),
    "id of a letter sent back": Thing(LETTER, lambda made: read_letter(_stored(make_letter(made))).message_id),
    "id of a message of audit": Thing(MESSAGE, transform.id_of_message),
}
