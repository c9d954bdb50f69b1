"""Apache RocketMQ for Apache Beam, in Python: read from it and write to it, on any runner.

Public names are resolved on first use (PEP 562), so that `import rmqio.runners.spark` alone imports nothing else.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmqio.loading import lazy_names

if TYPE_CHECKING:
    from rmqio.batches import Batch, MessageBatch
    from rmqio.claims.check import ClaimCheck
    from rmqio.errors import RmqioError
    from rmqio.model import Message, MessageQueue, Record, SendResult
    from rmqio.options import ClientOptions, ReadOptions, WriteOptions
    from rmqio.repeats import LookBack
    from rmqio.security import CallableCredentials, Credentials, EnvironmentCredentials, FileCredentials, Security, Tls
    from rmqio.sending.batches import FailedMessage
    from rmqio.start import StartFrom, StopAt
    from rmqio.transforms.deduplicate import DropDuplicates
    from rmqio.transforms.failures import ReadFailure
    from rmqio.transforms.map_records import DecodeRecords, MapRecords
    from rmqio.transforms.read import ReadAllFromRocketMQ, ReadFromRocketMQ
    from rmqio.transforms.reading.restriction import QueueDescriptor
    from rmqio.transforms.write import WriteDeadLetters, WriteToRocketMQ, WriteToRocketMQResult
    from rmqio.transforms.writing.elements import ConstantTopic, TopicFromFields

__version__ = "0.1.0"


def _is_of_use(record: logging.LogRecord) -> bool:
    """Beam warns of a library of Google's, which nothing here uses, whenever it is imported."""
    return not (isinstance(record.msg, str) and record.msg.startswith("apitools not found"))


logging.getLogger().addFilter(_is_of_use)

_HOMES = {
    "ConstantTopic": "transforms",
    "DecodeRecords": "transforms",
    "DropDuplicates": "transforms",
    "FailedMessage": "transforms",
    "MapRecords": "transforms",
    "TopicFromFields": "transforms",
    "ClaimCheck": "claims.check",
    "Batch": "batches",
    "MessageBatch": "batches",
    "RmqioError": "errors",
    "LookBack": "repeats",
    "Message": "model",
    "MessageQueue": "model",
    "Record": "model",
    "SendResult": "model",
    "ClientOptions": "options",
    "ReadOptions": "options",
    "WriteOptions": "options",
    "CallableCredentials": "security",
    "Credentials": "security",
    "EnvironmentCredentials": "security",
    "FileCredentials": "security",
    "Security": "security",
    "Tls": "security",
    "StartFrom": "start",
    "StopAt": "start",
    "QueueDescriptor": "transforms",
    "ReadAllFromRocketMQ": "transforms",
    "ReadFailure": "transforms",
    "ReadFromRocketMQ": "transforms",
    "WriteDeadLetters": "transforms",
    "WriteToRocketMQ": "transforms",
    "WriteToRocketMQResult": "transforms",
}

__all__ = [
    "Batch",
    "CallableCredentials",
    "ClaimCheck",
    "ClientOptions",
    "ConstantTopic",
    "Credentials",
    "DecodeRecords",
    "DropDuplicates",
    "EnvironmentCredentials",
    "FailedMessage",
    "FileCredentials",
    "LookBack",
    "MapRecords",
    "Message",
    "MessageBatch",
    "MessageQueue",
    "QueueDescriptor",
    "ReadAllFromRocketMQ",
    "ReadFailure",
    "ReadFromRocketMQ",
    "ReadOptions",
    "Record",
    "RmqioError",
    "Security",
    "SendResult",
    "StartFrom",
    "StopAt",
    "Tls",
    "TopicFromFields",
    "WriteDeadLetters",
    "WriteOptions",
    "WriteToRocketMQ",
    "WriteToRocketMQResult",
]


__getattr__ = lazy_names(__name__, _HOMES, keep_in=globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
