"""The Beam transforms. Importing this package registers coders for rmqio's types, so that none of them is pickled."""

from __future__ import annotations

from rmqio.sending.batches import FailedMessage
from rmqio.transforms.coders.values import register_coders
from rmqio.transforms.decode import DecodeRecords
from rmqio.transforms.deduplicate import DropDuplicates
from rmqio.transforms.descriptor import QueueDescriptor
from rmqio.transforms.failures.read_failures import ReadFailure
from rmqio.transforms.failures.write_dead_letters import WriteDeadLetters
from rmqio.transforms.map_records import MapRecords
from rmqio.transforms.read import ReadAllFromRocketMQ, ReadFromRocketMQ
from rmqio.transforms.write import WriteToRocketMQ, WriteToRocketMQResult
from rmqio.transforms.writing.selector import ConstantTopic, TopicFromFields

register_coders()

__all__ = [
    "ConstantTopic",
    "DecodeRecords",
    "DropDuplicates",
    "FailedMessage",
    "MapRecords",
    "QueueDescriptor",
    "ReadAllFromRocketMQ",
    "ReadFailure",
    "ReadFromRocketMQ",
    "TopicFromFields",
    "WriteDeadLetters",
    "WriteToRocketMQ",
    "WriteToRocketMQResult",
]
