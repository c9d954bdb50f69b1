"""The Beam transforms. Importing this package registers coders for rmqio's types, so that none of them is pickled."""

from __future__ import annotations

from rmqio.sending.batches import FailedMessage
from rmqio.transforms.coders import register_coders
from rmqio.transforms.deduplicate import DropDuplicates
from rmqio.transforms.failures import LogFailures, ReadFailure
from rmqio.transforms.map_records import DecodeRecords, MapRecords
from rmqio.transforms.read import ReadAllFromRocketMQ, ReadFromRocketMQ
from rmqio.transforms.reading.restriction import QueueDescriptor
from rmqio.transforms.write import WriteDeadLetters, WriteToRocketMQ, WriteToRocketMQResult
from rmqio.transforms.writing.elements import ConstantTopic, TopicFromFields, ids_by

register_coders()

__all__ = [
    "ConstantTopic",
    "DecodeRecords",
    "DropDuplicates",
    "FailedMessage",
    "LogFailures",
    "MapRecords",
    "QueueDescriptor",
    "ReadAllFromRocketMQ",
    "ReadFailure",
    "ReadFromRocketMQ",
    "TopicFromFields",
    "WriteDeadLetters",
    "WriteToRocketMQ",
    "WriteToRocketMQResult",
    "ids_by",
]
