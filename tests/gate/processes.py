"""Child processes of the gate, of which none outlives it, whatever it has started and however it ends.

Tests start brokers, JVMs and programs in sessions of their own, so a signal to a process group does not reach them.
Here the kernel gives the gate each process whose parent has ended (Linux, `PR_SET_CHILD_SUBREAPER`), so all of them are
found below it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Container, Iterator
from typing import Final

import psutil

from tests.gate.ending import heed_signals

_PR_SET_CHILD_SUBREAPER: Final = 36
_GRACE_S: Final = 10.0


def adopt() -> None:
    """Makes this process the parent of what its descendants leave behind, and a signal that ends it an `Ended`.

    What this process starts has the default actions again, even if this process was started with SIGINT ignored, as a
    shell starts what runs in the background.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    heed_signals()


def reap(but: Container[int] = ()) -> None:
    """Takes note of adopted processes that have ended, as an init does. `but`: ids that somebody else waits for."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in but:
            os.waitpid(ended.si_pid, 0)


def left() -> list[psutil.Process]:
    """Returns all processes below this one that run."""
    return [each for each in psutil.Process().children(recursive=True) if _runs(each)]


def lasting(limit_s: float) -> Iterator[tuple[str, str]]:
    """Yields the processes below this one that have not ended by themselves after so long: test and command.

    pytest names the test in the environment of what it starts. "" is not known.
    """
    deadline = time.monotonic() + limit_s
    reap()  # what waits for the end of another process waits until somebody has taken note of it
    while (alive := left()) and time.monotonic() < deadline:
        time.sleep(0.1)  # what others have started cannot be waited for
        reap()
    for each in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            test = each.environ().get("PYTEST_CURRENT_TEST", "")
            yield test.rpartition(" (")[0], " ".join(each.cmdline())


def end_all() -> None:
    """Ends all processes below this one: SIGTERM, then SIGKILL for what is there after ten seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        # What ends may have started more meanwhile, so this looks again until there is nothing.
        while processes := left():
            for each in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(number)
            _, alive = psutil.wait_procs(processes, timeout=_GRACE_S if number == signal.SIGTERM else None)
            if alive:
                break


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
