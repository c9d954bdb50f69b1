"""Checks whether a local name server or broker is up: it answers in its own protocol, not just an open port."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import itertools
import json
import re
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rmqio.local.config import CLUSTER
from rmqio.local.errors import LocalBrokerError
from rmqio.local.processes import JavaProcess

# A blocking remoting client for single requests: health checks and topic administration of the local broker.
#
# It is deliberately independent of `rmqio.client`: the code that starts the broker must not depend on the code under
# test.

UPDATE_AND_CREATE_TOPIC: Final = 17
UPDATE_BROKER_CONFIG: Final = 25
GET_ROUTEINFO_BY_TOPIC: Final = 105
GET_BROKER_CLUSTER_INFO: Final = 106
DELETE_TOPIC_IN_BROKER: Final = 215
DELETE_TOPIC_IN_NAMESRV: Final = 216
GET_TOPIC_CONFIG: Final = 351

SUCCESS: Final = 0
TOPIC_NOT_EXIST: Final = 17

_VERSION_5_5_0: Final = 513
_MAX_FRAME: Final = 16 * 1024 * 1024
_opaque = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its code, the server's remark and the body."""

    code: int
    remark: str
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON. Some answers have integer keys (broker ids), which is invalid JSON: fixed here."""
        return json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', self.body) or b"{}")


def call(
    address: str,
    code: int,
    fields: Mapping[str, str] | None = None,
    *,
    body: bytes = b"",
    credentials: tuple[str, str] | None = None,
    timeout_s: float = 3.0,
) -> Answer:
    """Send one request over a new connection and wait for its answer.

    Raises OSError when the peer cannot be reached, closes the connection or does not answer within `timeout_s` (a
    stopped process accepts connections but never answers), and ValueError when it does not speak the protocol.
    """
    opaque = next(_opaque)
    ext = dict(fields or {})
    if credentials is not None:
        ext["AccessKey"], secret = credentials
        signed = "".join(ext[key] for key in sorted(ext)).encode() + body
        ext["Signature"] = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha1).digest()).decode()
    head = {
        "code": code,
        "language": "PYTHON",
        "version": _VERSION_5_5_0,
        "opaque": opaque,
        "flag": 0,
        "extFields": ext,
    }
    header = json.dumps(head).encode()
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + timeout_s
    with socket.create_connection((host, int(port)), timeout_s) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        while True:
            answer, received = _read_frame(connection, deadline)
            # A server also sends its own requests on our socket, and their opaque can equal ours: check the flag.
            if answer["flag"] & 1 and answer["opaque"] == opaque:
                return Answer(answer["code"], answer.get("remark") or "", received)


def _read_frame(connection: socket.socket, deadline: float) -> tuple[dict[str, Any], bytes]:
    (size,) = struct.unpack(">i", _read(connection, 4, deadline))
    if not 4 <= size <= _MAX_FRAME:
        raise ValueError(f"a frame of {size} bytes: this is not RocketMQ's remoting protocol")
    frame = _read(connection, size, deadline)
    header_size = int.from_bytes(frame[1:4], "big")
    return json.loads(frame[4 : 4 + header_size]), frame[4 + header_size :]


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        # Never 0: this would make the socket non-blocking.
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the peer closed the connection without an answer")
        data += chunk
    return bytes(data)


_POLL_S: Final = 0.05
_GRACE_S: Final = 2.0
_CALL_TIMEOUT_S: Final = 3.0

Check = Callable[[], str | None]
"""Returns None when all is well, or what is still missing."""


def wait_until(check: Check, processes: Sequence[JavaProcess], *, what: str, timeout_s: float) -> None:
    """Poll `check` until it returns None.

    Raises LocalBrokerError, with the end of the logs, if one of `processes` fails meanwhile or the time is over.
    """
    deadline = time.monotonic() + timeout_s
    # A broker whose port is taken reports it at once, but needs more than a minute to end: do not wait for that.
    given_up: dict[str, float] = {}
    while (missing := check()) is not None:
        now = time.monotonic()
        for process in processes:
            if process.has_failed() and now >= given_up.setdefault(process.title, now + _GRACE_S):
                raise LocalBrokerError(f"the {process.title} failed while {what}\n{process.tail()}")
        if now > deadline:
            tails = "\n".join(process.tail() for process in processes)
            raise LocalBrokerError(f"{what}: not done after {timeout_s:g} s: {missing}\n{tails}")
        time.sleep(_POLL_S)


def name_server_check(name_server: str) -> str | None:
    """Check that the name server answers a route request; any answer is enough, since there may be no topic yet."""
    try:
        call(name_server, GET_ROUTEINFO_BY_TOPIC, _route_fields("TBW102"), timeout_s=_CALL_TIMEOUT_S)
    except (OSError, ValueError) as error:
        return f"the name server at {name_server} does not answer ({error})"
    return None


def broker_check(name_server: str, name: str, broker: str) -> str | None:
    """Check that the broker answers on its port, and that the name server lists it under `name` with that address."""
    try:
        answer = call(name_server, GET_BROKER_CLUSTER_INFO, timeout_s=_CALL_TIMEOUT_S)
        cluster = answer.json() if answer.code == SUCCESS else {}
    except (OSError, ValueError) as error:
        return f"the name server at {name_server} does not answer ({error})"
    listed = cluster.get("brokerAddrTable", {}).get(name, {}).get("brokerAddrs", {})
    if name not in cluster.get("clusterAddrTable", {}).get(CLUSTER, []) or broker not in listed.values():
        return f"the broker {name} has not registered at the name server {name_server}"
    try:
        # Any answer is enough: with access control, it is a refusal.
        call(broker, GET_TOPIC_CONFIG, {"topic": "SELF_TEST_TOPIC"}, timeout_s=_CALL_TIMEOUT_S)
    except (OSError, ValueError) as error:
        return f"the broker at {broker} does not answer ({error})"
    return None


def ask_to_register(broker: str, conf: Path, *, permission: object, credentials: tuple[str, str] | None) -> None:
    """Make the broker register now, if it answers.

    At its start it registers only if it has connected to the name server by then, else after ten seconds; it loses this
    race at about every second quick start. It also registers when its permission is set. Then it writes all its
    properties to `conf`, in an encoding that it does not read again, so the file is put back.
    """
    before = conf.read_bytes()
    body = f"brokerPermission={permission}\n".encode()
    with contextlib.suppress(OSError, ValueError):
        call(broker, UPDATE_BROKER_CONFIG, body=body, credentials=credentials, timeout_s=_CALL_TIMEOUT_S)
    if conf.read_bytes() != before:
        conf.write_bytes(before)


def route(name_server: str, topic: str) -> dict[str, Any] | None:
    """Return the topic's route at the name server, or None. Raises OSError or ValueError as `probe.call`."""
    fields = _route_fields(topic)
    answer = call(name_server, GET_ROUTEINFO_BY_TOPIC, fields, timeout_s=_CALL_TIMEOUT_S)
    return dict(answer.json()) if answer.code == SUCCESS else None


def route_check(name_server: str, topic: str, broker_name: str, *, queues: int) -> str | None:
    """Check that the name server's route shows `queues` queues of the topic on the broker."""
    try:
        found = route(name_server, topic) or {}
    except (OSError, ValueError) as error:
        return f"the name server at {name_server} does not answer ({error})"
    for entry in found.get("queueDatas", []):
        if entry["brokerName"] == broker_name and entry["readQueueNums"] == entry["writeQueueNums"] == queues:
            return None
    return f"the name server's route of topic {topic!r} does not show {queues} queues on {broker_name}"


def no_route_check(name_server: str, topic: str) -> str | None:
    """Check that the name server has no route of the topic."""
    try:
        return None if route(name_server, topic) is None else f"topic {topic!r} still has a route"
    except (OSError, ValueError) as error:
        return f"the name server at {name_server} does not answer ({error})"


def _route_fields(topic: str) -> dict[str, str]:
    # Without this field a name server writes integer keys, which is invalid JSON.
    return {"topic": topic, "acceptStandardJsonOnly": "true"}
