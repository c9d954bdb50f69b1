"""Checks of every target: both implementations say the same, and memory is bounded by the input."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any, Final

from rmqio.wire import accelerator, batch, command, stored

KIB: Final = 1024
# The decoders in `rmqio.wire`, each chosen by whether there is the C extension: module, name, Python, C.
_CHOICES: Final[tuple[tuple[Any, str, Any, Any], ...]] = (
    (stored, "_decode_usual", stored._decode_usual_in_python, accelerator.decode_usual),
    (batch, "_encode_usual", None, accelerator.encode_usual),
    (command, "_read_usual", None, accelerator.read_usual_header),
)
measure_one_in = 16
"""One of so many inputs is measured: a measured call takes twice as long. Chosen by the input, so that an input that
fails fails again."""


class Violation(AssertionError):
    """A decoder broke a promise."""


def require(holds: object, what: str, *seen: object) -> None:
    """Raises `Violation`. Not `assert`, which `-O` removes."""
    if not holds:
        raise Violation(f"{what}: {', '.join(f'{each!r:.600}' for each in seen)}")


def outcome(call: Callable[[], Any], *expected: type[Exception]) -> Any:
    """Returns the result of a call, or an error of the types that it documents, as type and text. Others escape."""
    try:
        return call()
    except expected as error:
        return type(error), str(error)


def same_in_both(call: Callable[[], Any], like: Callable[[Any], object] = repr) -> Any:
    """Returns a call's result in Python; in C it must be the same, as `like` shows it. Without the extension: Python's.

    By its text and not by `==`, for which True is 1 and NaN is not itself.
    """
    chosen = [(module, name, getattr(module, name)) for module, name, _, _ in _CHOICES]
    try:
        for module, name, in_python, _ in _CHOICES:
            setattr(module, name, in_python)
        result = call()
        if accelerator.IMPLEMENTATION == "c":
            for module, name, _, in_c in _CHOICES:
                setattr(module, name, in_c)
            other = call()
            require(like(result) == like(other), "Python and C differ", result, other)
        return result
    finally:
        for module, name, before in chosen:
            setattr(module, name, before)


def bounded(data: bytes, call: Callable[[], Any], *, times: int = 64, plus: int = 256 * KIB) -> Any:
    """Returns a call's result. For some inputs it must hold at most `times` the input and `plus` bytes at a time.

    64: an empty list in JSON is two bytes, and 56 bytes in Python. Seen is what Python allocates, and not what the
    libraries of LZ4 and zstd do. What other threads allocate meanwhile, and a module that is imported at first use, is
    seen, too: an input holds too much if it does so each time.
    """
    if zlib.crc32(data) % measure_one_in or tracemalloc.is_tracing():
        return call()
    for _ in range(3):
        tracemalloc.start()
        try:
            result = call()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if peak <= times * len(data) + plus:
            return result
    raise Violation(f"{peak} bytes were held for an input of {len(data)}: {data!r:.600}")
