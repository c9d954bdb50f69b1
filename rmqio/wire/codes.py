"""Numbers of the remoting protocol (RequestCode.java, RemotingCommand.java, PullSysFlag.java, LanguageCode.java)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final


class RequestCode(IntEnum):
    """Request codes that this client sends or receives."""

    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    PULL_MESSAGE = 11
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    END_TRANSACTION = 37
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    CHECK_CLIENT_CONFIG = 46
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    GET_TOPIC_CONFIG = 351
    RECALL_MESSAGE = 370


class ResponseCode(IntEnum):
    """Response codes that are more than an error; errors are in `rmqio.errors`."""

    SUCCESS = 0
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22


class CommandFlag(IntFlag):
    RESPONSE = 1
    ONEWAY = 2


class Serialization(IntEnum):
    """The format of a header: the top byte of the header length."""

    JSON = 0
    ROCKETMQ = 1


class PullFlag(IntFlag):
    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8


LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
    "NODE_JS",
)  # fmt: skip
PYTHON: Final = LANGUAGES.index("PYTHON")

VERSION: Final = 513
"""We report V5_5_0. From 401 on a name server emits strict JSON; above 475 a broker may answer GO_AWAY."""

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The server's own limit (`com.rocketmq.remoting.frameMaxLength`): it closes the socket above it."""
