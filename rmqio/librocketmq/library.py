"""The C functions of librocketmq, from the installed `rocketmq` module, or the reason why there are none."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import re
import threading
from collections.abc import Sequence
from ctypes import c_char, c_char_p, c_int, c_longlong, c_void_p
from ctypes.util import find_library
from pathlib import Path
from typing import Any, Final

from rmqio.errors import LocalError

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
