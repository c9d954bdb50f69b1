"""Commands (requests and answers) as bytes: their codes, their two header formats, and their frames. No I/O."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from json.encoder import encode_basestring as _quoted
from typing import Any, Final

from rmqio.errors import LocalError, WireError
from rmqio.wire import accelerator
from rmqio.wire.accelerator import HeaderFields

# Numbers of the remoting protocol (RequestCode.java, RemotingCommand.java, PullSysFlag.java, LanguageCode.java).


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


_FIXED = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, length of the remark
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
# Plain numbers: those of an enumeration are slower; an IntFlag's `&` takes 1 us.
_RESPONSE, _ONEWAY = int(CommandFlag.RESPONSE), int(CommandFlag.ONEWAY)
_JSON, _ROCKETMQ = int(Serialization.JSON), int(Serialization.ROCKETMQ)
_read_usual = accelerator.read_usual_header
_DECODE_JSON = json.JSONDecoder().raw_decode


@dataclass(slots=True)
class Command:
    """A request or an answer. Immutable, except that the connection sets its `opaque`."""

    code: int
    ext: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: int = PYTHON
    version: int = VERSION

    @property
    def is_response(self) -> bool:
        """Whether this answers our request: a server also sends its own requests on the same socket."""
        return bool(self.flag & _RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & _ONEWAY)

    def __repr__(self) -> str:
        # Neither field values (a signature, an access key) nor the body belong in a log.
        kind = "answer" if self.is_response else "request"
        return f"<{kind} code={self.code} opaque={self.opaque} fields={sorted(self.ext)} body={len(self.body)} B>"


def refuse(request: Command) -> Command | None:
    """Return our answer to a request from the server: None for a one-way one, else "not supported"."""
    if request.is_oneway:
        return None
    return Command(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        opaque=request.opaque,
        flag=CommandFlag.RESPONSE,
        remark=f"request code {request.code} is not served by this client",
    )


def encode_header(command: Command, serialization: Serialization = Serialization.JSON) -> bytes:
    """Return the header's bytes, without the lengths that precede it."""
    if serialization is Serialization.JSON:
        return _encode_json(command)
    return _encode_rocketmq(command)


def decode_header(data: bytes, serialization: int) -> Command:
    """Return the command that a header describes, without its body. Raises only `WireError`."""
    if serialization == _JSON:
        return _decode_json(data)
    if serialization == _ROCKETMQ:
        return _decode_rocketmq(data)
    raise WireError(f"unknown header serialization {serialization}; known are 0 (JSON) and 1 (ROCKETMQ)")


def _encode_json(command: Command) -> bytes:
    # Assembled here, in half the time of `json.dumps`, which creates an encoder for each call.
    fields = ",".join([f"{_quoted(name)}:{_quoted(value)}" for name, value in command.ext.items()])
    remark = "" if command.remark is None else f',"remark":{_quoted(command.remark)}'
    return (
        f'{{"code":{command.code:d},"language":"{LANGUAGES[command.language]}","version":{command.version:d},'
        f'"opaque":{command.opaque:d},"flag":{command.flag:d},"extFields":{{{fields}}}{remark}}}'
    ).encode("utf-8", "surrogatepass")


def _decode_json(data: bytes) -> Command:
    usual = None if _read_usual is None else _read_usual(data)
    try:
        code, ext, opaque, flag, remark, language, version = _read_json(data) if usual is None else usual
    except RecursionError as error:  # JSON that can just be parsed may be nested too deeply to show or write
        raise WireError("header is JSON nested too deeply") from error
    number = LANGUAGES.index(language) if language in LANGUAGES else PYTHON
    # By position: keywords take twice as long, and this runs for each 32 messages read.
    return Command(code, ext, b"", opaque, flag, remark, number, version)


def _read_json(data: bytes) -> HeaderFields:
    header = _parse_json(data)
    if not isinstance(header, dict):
        raise WireError(f"header is a JSON {type(header).__name__}, not an object")
    get = header.get
    code, opaque, flag, version = get("code", 0), get("opaque", 0), get("flag", 0), get("version", 0)
    if not type(code) is type(opaque) is type(flag) is type(version) is int:
        raise _not_a_number(header)
    ext, remark = get("extFields") or {}, get("remark")
    if not isinstance(ext, dict) or not (remark is None or isinstance(remark, str)):
        raise WireError("header field extFields or remark has the wrong type")
    for value in ext.values():
        if type(value) is not str:
            ext = {key: value if isinstance(value, str) else _json_text(value) for key, value in ext.items()}
            break
    return code, ext, opaque, flag, remark, get("language"), version


def _parse_json(data: bytes) -> Any:
    """Parse in 2.5 us for a pull's answer; `json.loads` takes 4.3, as it first checks encodings and white space."""
    try:
        text = data.decode()
        value, end = _DECODE_JSON(text)
        if end == len(text):
            return value
    except (ValueError, RecursionError):
        pass
    # Leave anything unusual or wrong to `json.loads`.
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireError(f"header is not JSON: {error}") from error


def _not_a_number(header: Mapping[str, Any]) -> WireError:
    for name in ("code", "opaque", "flag", "version"):
        value = header.get(name, 0)
        if type(value) is not int:
            return WireError(f"header field {name} is {value!r:.40}, not a number")
    raise AssertionError("all four are numbers")


def _json_text(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value)


def _encode_rocketmq(command: Command) -> bytes:
    if not -32768 <= command.code <= 32767:
        raise LocalError(f"code {command.code} does not fit the ROCKETMQ header's 16 bits; use the JSON header")
    remark = (command.remark or "").encode()
    fixed = _FIXED.pack(command.code, command.language, command.version, command.opaque, command.flag, len(remark))
    ext = bytearray()
    for key, value in command.ext.items():
        raw_key, raw_value = key.encode(), value.encode()
        ext += _SHORT.pack(len(raw_key)) + raw_key + _INT.pack(len(raw_value)) + raw_value
    return fixed + remark + _INT.pack(len(ext)) + bytes(ext)


def _decode_rocketmq(data: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(data)
        position = _FIXED.size
        remark, position = _take(data, position, remark_length)
        (ext_length,) = _INT.unpack_from(data, position)
        position += 4
        if ext_length < 0 or position + ext_length != len(data):
            raise WireError(f"ROCKETMQ header: field length {ext_length} does not fit a header of {len(data)} bytes")
        ext: dict[str, str] = {}
        while position < len(data):
            (key_length,) = _SHORT.unpack_from(data, position)
            key, position = _take(data, position + 2, key_length)
            (value_length,) = _INT.unpack_from(data, position)
            value, position = _take(data, position + 4, value_length)
            ext[key.decode()] = value.decode()
        text = remark.decode() if remark else None
    except struct.error as error:
        raise WireError(f"ROCKETMQ header is cut short at {len(data)} bytes") from error
    except UnicodeDecodeError as error:
        raise WireError(f"ROCKETMQ header is not UTF-8: {error}") from error
    return Command(code, ext, opaque=opaque, flag=flag, remark=text, language=language, version=version)


def _take(data: bytes, position: int, length: int) -> tuple[bytes, int]:
    end = position + length
    if length < 0 or end > len(data):
        raise WireError(f"ROCKETMQ header: a length of {length} at byte {position} exceeds {len(data)} bytes")
    return data[position:end], end


# Frames: converts bytes to commands, without I/O (NettyDecoder.java, RemotingCommand.java).
#
# int32 length of the rest | int8 serialization, int24 header length | header | body

_LENGTHS = struct.Struct(">ii")
_SMALL = 512
"""Smaller pieces are merged: as an object of its own, a piece of two bytes takes twenty times as much memory."""


def encode_frame(command: Command, serialization: Serialization = Serialization.JSON) -> bytes:
    """Return the bytes to send for a command. Raises `LocalError` when they exceed the server's limit."""
    return make_frame(encode_header(command, serialization), command.body, command, serialization)


def make_frame(header: bytes, body: bytes, request: object, serialization: int = 0) -> bytes:
    """Return the bytes to send; an error names the request. Raises as `encode_frame`."""
    return frame_head(header, len(body), request, serialization) + body


def frame_head(header: bytes, body_size: int, request: object, serialization: int = 0) -> bytes:
    """Return what is before the body of a frame. Raises as `make_frame`."""
    size = len(header)
    length = 4 + size + body_size
    if length > MAX_FRAME_BYTES:
        raise LocalError(f"{request!r} makes a frame of {length} bytes; a server closes the connection above 16 MiB")
    return _LENGTHS.pack(length, serialization << 24 | size) + header


class FrameDecoder:
    """Receives bytes and returns complete commands.

    The first eight bytes are checked first, so that a hostile length never makes us buffer more than `max_frame_bytes`.
    After a `WireError` the decoder is unusable: close the connection.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        # Frames are cut in place: each body is copied once. Only the partial frame at the end of a receive is copied
        # with the next pieces, once, when they complete it.
        self._data = b""
        self._begin = 0
        """Start of the next frame in `_data`."""
        self._pieces: list[bytes | bytearray] = []
        """Pieces that arrived after `_data`; small ones are merged."""
        self._unread = 0
        """Number of bytes that are not part of a command yet."""
        self._wanted = _LENGTHS.size
        """Number of bytes required before checking again."""
        self._max_frame_bytes = max_frame_bytes
        self._failure: str | None = None

    def __repr__(self) -> str:
        return f"<FrameDecoder {self._unread} B buffered{', failed' if self._failure else ''}>"

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes received from a socket."""
        if not isinstance(data, bytes):
            data = bytes(data)
        if self._unread:
            if len(data) >= _SMALL:
                self._pieces.append(data)
            elif self._pieces and isinstance(last := self._pieces[-1], bytearray):
                last += data
            else:
                self._pieces.append(bytearray(data))
        else:
            self._data, self._begin = data, 0
        self._unread += len(data)

    def next_command(self) -> Command | None:
        """Return the next complete command, or None when more bytes are needed. Raises `WireError`."""
        if self._failure is not None:
            raise WireError(self._failure)
        if self._unread < self._wanted:
            return None
        if self._pieces:
            self._join()
        data, begin = self._data, self._begin
        length, mark = _LENGTHS.unpack_from(data, begin)
        header_begin = begin + 8
        header_end = header_begin + (mark & 0xFFFFFF)
        end = begin + 4 + length
        try:
            if not 4 <= length <= self._max_frame_bytes:
                raise WireError(f"frame length {length} is not between 4 and {self._max_frame_bytes}")
            if header_end > end:
                raise WireError(f"header length {mark & 0xFFFFFF} exceeds its frame of {length} bytes")
            if end > len(data):
                self._wanted = 4 + length
                return None
            command = decode_header(data[header_begin:header_end], mark >> 24)
        except WireError as error:
            self._failure = str(error)
            self._clear()
            raise
        command.body = data[header_end:end]
        self._begin = end
        self._unread = len(data) - end
        self._wanted = 8
        if not self._unread:
            self._data, self._begin = b"", 0
        return command

    def _join(self) -> None:
        self._data = b"".join((memoryview(self._data)[self._begin :], *self._pieces))
        self._begin = 0
        self._pieces.clear()

    def _clear(self) -> None:
        self._data, self._begin, self._unread = b"", 0, 0
        self._pieces.clear()
