"""Ctrl-C ends a pipeline that runs in this process, also if what runs at that moment drops the exception."""

from __future__ import annotations

import _thread
import contextlib
import queue
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Any


class _Interrupt(KeyboardInterrupt):
    """Python tells when it is dropped: it has no weak references to instances of a class in C."""


_Interrupt.__module__, _Interrupt.__qualname__ = "builtins", KeyboardInterrupt.__name__  # Beam's texts name it


@contextlib.contextmanager
def interrupts_until_raised() -> Iterator[None]:
    """Raises `KeyboardInterrupt` out of the block after Ctrl-C, wherever in it the signal arrives.

    Python raises the exception in whatever runs: a destructor, a callback or an `except:`, which drop it, and an
    endless pipeline would go on. Here, one that nothing refers to any more, while the block still runs, is raised
    again. Nothing changes outside the main thread, and for a program with a handler of its own.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    raised: list[weakref.ref[_Interrupt]] = []
    dropped: queue.SimpleQueue[object] = queue.SimpleQueue()
    is_over = False

    def made() -> _Interrupt:
        if not raised:
            _thread.start_new_thread(raise_again, ())  # the lock of threads may be held by what is interrupted
        error = _Interrupt()
        raised.append(weakref.ref(error, dropped.put))
        return error

    def interrupt(*_: Any) -> None:
        raise made()  # no variable of a frame in its traceback refers to it

    def raise_again() -> None:
        # In a thread: a signal's handler runs in the middle of a destructor in Python, which would drop this one, too.
        while dropped.get() is not None and not is_over:
            _thread.interrupt_main()

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except _Interrupt as error:  # a process that a class of another name ends has status 1
        raise KeyboardInterrupt().with_traceback(error.__traceback__) from error.__cause__
    finally:
        is_over = True
        dropped.put(None)
        signal.signal(signal.SIGINT, signal.default_int_handler)
