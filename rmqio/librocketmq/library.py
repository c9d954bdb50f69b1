"""The C functions of librocketmq, from the installed `rocketmq` module, or the reason why there are none."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_char, c_char_p, c_int, c_longlong, c_void_p
from ctypes.util import find_library
from pathlib import Path
from typing import Any, Final

from rmqio.errors import LocalError, TransportError
from rmqio.options import ClientOptions
from rmqio.wire.batch import MAX_MESSAGE_BYTES

INSTALL: Final = (
    "install rocketmq==0.4.4, whose wheel for Linux on x86_64 bundles the library; or rocketmq-client-python and "
    "your own librocketmq"
)
_OTHER_MODULE: Final = (
    "Both distributions contain the module `rocketmq`, and so does rocketmq-python-client, a different client: only "
    "one of them can be installed"
)


class SentTo(ctypes.Structure):
    """CSendResult. The library does not report the queue."""

    _fields_ = (("status", c_int), ("message_id", c_char * 256), ("offset", c_longlong))


_SELECT: Final = ctypes.CFUNCTYPE(c_int, c_int, c_void_p, c_void_p)

_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "CreateProducer": (c_void_p, c_char_p),
    "SetProducerLogLevel": (c_int, c_void_p, c_int),
    "SetProducerInstanceName": (c_int, c_void_p, c_char_p),
    "SetProducerNameServerAddress": (c_int, c_void_p, c_char_p),
    "SetProducerSessionCredentials": (c_int, c_void_p, c_char_p, c_char_p, c_char_p),
    "SetProducerSendMsgTimeout": (c_int, c_void_p, c_int),
    "SetProducerMaxMessageSize": (c_int, c_void_p, c_int),
    "SetProducerCompressMsgBodyOverHowmuch": (c_int, c_void_p, c_int),
    "SetProducerCompressLevel": (c_int, c_void_p, c_int),
    "StartProducer": (c_int, c_void_p),
    "ShutdownProducer": (c_int, c_void_p),
    "CreateMessage": (c_void_p, c_char_p),
    "DestroyMessage": (c_int, c_void_p),
    "SetMessageTopic": (c_int, c_void_p, c_char_p),
    "SetByteMessageBody": (c_int, c_void_p, c_char_p, c_int),
    "SetMessageProperty": (c_int, c_void_p, c_char_p, c_char_p),
    "SendMessageOrderly": (c_int, c_void_p, c_void_p, _SELECT, c_void_p, c_int, ctypes.POINTER(SentTo)),
    "GetLatestErrorMessage": (c_char_p,),
}
"""Maps names to result and arguments. Declared here on our own handle, because neither module declares all of them."""

_NO_TOPIC: Final = b"%%the-route-has-changed%%"
"""No broker has a topic with this name, so a message to it is refused."""


class Library:
    """The functions, as attributes of `c`. A call releases the GIL and blocks.

    Args:
      path: of the shared library, or its name.

    Raises `LocalError` naming missing functions, and `OSError` when it is not a library.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.c = ctypes.CDLL(path)
        missing = missing_functions(self.c, list(_FUNCTIONS))
        if missing:
            raise LocalError(f"librocketmq at {path} lacks required functions: {', '.join(missing)}")
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(self.c, name)
            function.restype, function.argtypes = result, arguments
        self._local = threading.local()
        self._select = _SELECT(self._choose)  # kept: the library calls it

    def send(self, producer: int, message: int, index: int, count: int, into: SentTo) -> int | None:
        """Send a message to the queue at `index` of the topic's `count` queues; return the status code, 0: stored.

        None: the library knows another number of queues, so the index can mean another queue; nothing was stored.
        """
        self._local.has_changed = False
        place = count << 32 | index + 1  # the library refuses a null
        status: int = self.c.SendMessageOrderly(producer, message, self._select, place, 0, ctypes.byref(into))
        return None if self._local.has_changed else status

    def error_text(self) -> str:
        """Return the library's message for this thread's last failure."""
        text = (self.c.GetLatestErrorMessage() or b"").decode("utf-8", "replace")
        return text.removeprefix("msg: ").partition(",error:")[0].strip(" ,") or "no reason"

    def _choose(self, count: int, message: int, place: int) -> int:
        """Choose the queue; called by the library in the sending thread. An index outside its list would crash it."""
        expected, index = place >> 32, (place & 0xFFFFFFFF) - 1
        if count == expected:
            return index
        self._local.has_changed = True
        self.c.SetMessageTopic(message, _NO_TOPIC)  # there is no other way to stop it
        return 0


def missing_functions(library: ctypes.CDLL, names: Sequence[str]) -> list[str]:
    """Return the names that the library lacks."""
    return [name for name in names if not hasattr(library, name)]


_loaded: Library | None = None
_lock = threading.Lock()


def load() -> Library:
    """Return the library of the installed module, always the same. Raises `LocalError`, which says what to install."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = Library(_find())
        return _loaded


def _find() -> str:
    """Return the library's location according to the module, which also decides whether the two fit together."""
    try:
        ffi: Any = importlib.import_module("rocketmq.ffi")
        return str(ffi.dll._name)
    except ModuleNotFoundError as error:
        if error.name == "rocketmq":
            raise LocalError(f"backend 'librocketmq': the module `rocketmq` is not installed; {INSTALL}") from error
        raise LocalError(
            f"backend 'librocketmq': the module `rocketmq` of {_distribution()} belongs to another client ({error}). "
            f"{_OTHER_MODULE}; {INSTALL}"
        ) from error
    except AttributeError as error:
        raise LocalError(_unfit(error)) from error
    except (ImportError, NotImplementedError, OSError) as error:
        raise LocalError(
            f"backend 'librocketmq': {_distribution()} is installed, but its library cannot be loaded ({error}); "
            f"{INSTALL}"
        ) from error


def _unfit(error: AttributeError) -> str:
    """Return which functions the module declared that the library does not have."""
    spec = importlib.util.find_spec("rocketmq.ffi")
    assert spec is not None  # it was found, and failed
    assert spec.origin is not None
    source = Path(spec.origin)
    beside = [path for path in source.parent.glob("librocketmq.*") if path.suffix in (".so", ".dylib")]
    path = str(beside[0]) if beside else find_library("rocketmq") or ""
    wanted = re.findall(r"^dll\.(\w+)\.argtypes", source.read_text(encoding="utf-8"), re.MULTILINE)
    missing = missing_functions(ctypes.CDLL(path), wanted)
    if not missing:
        return f"backend 'librocketmq': {_distribution()} cannot be imported: {error}"
    return (
        f"backend 'librocketmq': {_distribution()} needs {len(missing)} functions that the library at {path} lacks: "
        f"{', '.join(missing)}. The library inside rocketmq 0.4.4 lacks them too; it works only with that "
        f"distribution's module; {INSTALL}. {_OTHER_MODULE}"
    )


def _distribution() -> str:
    """Return the distribution that installed the module `rocketmq`."""
    names = importlib.metadata.packages_distributions().get("rocketmq", [])
    versions = (f"{name} {importlib.metadata.version(name)}" for name in dict.fromkeys(names))
    return " and ".join(versions) or "the module `rocketmq`"


# Producers of the library, each used by one thread at a time.

_LOG_ERRORS: Final = 2
_NO_LIMIT: Final = 2**31 - 1

_names = itertools.count()
_started_in: int | None = None
"""The process in which the library has started its threads."""


def check_process() -> None:
    """Raise `LocalError` in a fork of a process in which the library has run.

    The library's threads are gone there, its locks may be held forever, and it would reuse its parent's ids.
    """
    if _started_in not in (None, os.getpid()):
        raise LocalError(
            f"backend 'librocketmq': the library runs in process {_started_in}, and cannot be used in its fork "
            f"{os.getpid()}; start the process with another method ('spawn'), or fork before the first "
            "message is sent"
        )


class Lane:
    """One producer of the library, with its own threads and connections.

    Threads do not share it: a send that finds another one connecting fails at once, and ids are generated without a
    lock.

    Raises `TransportError` when it does not start.
    """

    def __init__(self, library: Library, options: ClientOptions, group: str) -> None:
        global _started_in
        check_process()
        self._library = library
        c = library.c
        self._producer: int = c.CreateProducer(group.encode())
        if not self._producer:
            raise TransportError("librocketmq could not create a producer")
        self._set("SetProducerLogLevel", _LOG_ERRORS)  # first: the default writes a file at once
        # By default all producers of a process share their connections, and each group can exist only once.
        self._set("SetProducerInstanceName", f"rmqio-{os.getpid()}-{next(_names)}".encode())
        self._set("SetProducerNameServerAddress", ";".join(options.name_servers).encode())
        self._set("SetProducerSendMsgTimeout", options.request_timeout_ms)
        self._set("SetProducerMaxMessageSize", MAX_MESSAGE_BYTES)
        self._set("SetProducerCompressMsgBodyOverHowmuch", options.compress_over_bytes or _NO_LIMIT)
        self._set("SetProducerCompressLevel", options.compression_level)
        source = options.security.source
        if source is not None:
            credentials = source.get()
            keys = (credentials.access_key, credentials.secret_key, "")
            self._set("SetProducerSessionCredentials", *(key.encode() for key in keys))
        _started_in = os.getpid()
        self._set("StartProducer")

    def send(
        self, topic: bytes, body: bytes, properties: Sequence[tuple[bytes, bytes]], index: int, count: int
    ) -> tuple[int, int] | str | None:
        """Send a message to the queue at `index` of `count` and wait; return the status and the offset in the queue.

        A string is the library's reason for a failure; the outcome is unknown. None: the library knows another number
        of queues; nothing was stored.
        """
        c = self._library.c
        message = c.CreateMessage(topic)
        try:
            c.SetByteMessageBody(message, body, len(body))
            for name, value in properties:
                c.SetMessageProperty(message, name, value)
            sent = SentTo()
            status = self._library.send(self._producer, message, index, count, sent)
            if status is None:
                return None
            return (sent.status, sent.offset) if status == 0 else self._library.error_text()
        finally:
            c.DestroyMessage(message)

    def close(self) -> None:
        """Stop its threads and connections. The object itself remains: newer libraries crash when they free it."""
        self._library.c.ShutdownProducer(self._producer)

    def _set(self, function: str, *values: object) -> None:
        status = getattr(self._library.c, function)(self._producer, *values)
        if status != 0:
            raise TransportError(f"librocketmq: {function} fails: {self._library.error_text()}")


class Lanes:
    """Lanes for sending threads, created when all are in use. Thread-safe.

    Args:
      make: creates a lane.
      limit: the maximum number of lanes; further threads wait.
    """

    def __init__(self, make: Callable[[], Lane], limit: int) -> None:
        self._make = make
        self._limit = limit
        self._free: list[Lane] = []
        self._count = 0
        self._is_closed = False
        self._changed = threading.Condition()

    @contextmanager
    def lane(self) -> Iterator[Lane]:
        """Yield a lane for the `with` block. Raises the errors of creating one, and `LocalError` after `close`."""
        lane = self._take()
        try:
            yield lane
        finally:
            with self._changed:
                self._free.append(lane)
                self._changed.notify_all()

    def renew(self) -> None:
        """Close unused lanes: new ones look up routes again, which old ones do only every 30 s."""
        while True:
            with self._changed:
                if not self._free:
                    return
                lane = self._free.pop()
                self._count -= 1
                self._changed.notify_all()
            lane.close()

    def close(self) -> None:
        """Wait for lanes in use, each for at most the time of a send, and close all. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: len(self._free) == self._count)
        self.renew()

    def _take(self) -> Lane:
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._count < self._limit or self._is_closed)
            if self._is_closed:
                raise LocalError("this producer is closed")
            if self._free:
                return self._free.pop()
            self._count += 1
        try:
            return self._make()
        except BaseException:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()
            raise
