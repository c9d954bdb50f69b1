"""A watchdog process that kills the processes started here when this process dies, whatever the signal.

The watchdog is a `/bin/sh` that reads a pipe whose write end we hold. The kernel closes that end when we die, even by
SIGKILL, on both Linux and macOS. The watchdog then sees end of file, kills the registered processes and removes the
temporary folder. (PR_SET_PDEATHSIG is Linux only and fires when the *thread* that forked ends.)
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

# Lines are "+pid" and "-pid". A pid is forgotten as soon as its process was reaped, because the number is reused.
# Each process leads its own group, which is killed with it: children of a Java program must not outlive it.
# The wait before rm lets the killed processes vanish; otherwise they could write into the folder being removed.
_SCRIPT: Final = """
trap '' INT TERM HUP QUIT
pids=' '
while read -r line; do
    pid=${line#?}
    case $line in
        +*) pids="$pids$pid " ;;
        -*) case $pids in *" $pid "*) pids="${pids%% $pid *} ${pids#* $pid }" ;; esac ;;
    esac
done
for pid in $pids; do kill -9 "-$pid" 2>/dev/null || kill -9 "$pid" 2>/dev/null; done
tries=0
for pid in $pids; do
    while kill -0 "-$pid" 2>/dev/null && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
done
[ -z "$1" ] || rm -rf -- "$1"
"""

# The process registers itself before it becomes the real program, so that we cannot die while the watchdog does not
# know a child. Its standard input is the pipe until then, and never afterwards.
_REGISTER_AND_RUN: Final = 'echo "+$$" >&0; exec "$@" </dev/null'

_live: weakref.WeakSet[Watchdog] = weakref.WeakSet()


class Watchdog:
    """Starts processes that end when this process ends. Not inherited by forks: a child does not own them."""

    def __init__(self, temporary_dir: Path | None = None, *, hold: int | None = None) -> None:
        """`temporary_dir` is removed in the end. `hold` is a file descriptor that the watchdog inherits: if the caller
        closes its own copy, a lock on that file lasts until everything is killed, whatever happens to us.
        """
        read_end, self._pipe = os.pipe()  # both close-on-exec: programs executed later by us or Beam must not hold them
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "rmqio-watchdog", str(temporary_dir or "")],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                pass_fds=() if hold is None else (hold,),
                start_new_session=True,  # the terminal's Ctrl-C must reach only us
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(read_end)
        _live.add(self)

    def spawn(
        self, command: Sequence[str], *, cwd: Path, output: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start `command` in a new session, with both outputs appended to the file `output`."""
        with output.open("ab") as sink:
            return subprocess.Popen(
                ["/bin/sh", "-c", _REGISTER_AND_RUN, "sh", *command],
                stdin=self._pipe,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )

    def forget(self, pid: int) -> None:
        """Note that the process `pid` has been reaped, so that another process can reuse its number."""
        with contextlib.suppress(OSError):  # a killed watchdog has nothing to forget
            os.write(self._pipe, b"-%d\n" % pid)

    def close(self) -> None:
        """Stop the watchdog, which kills the processes it still knows and removes the temporary folder. Idempotent."""
        if self._pipe >= 0:
            pipe, self._pipe = self._pipe, -1
            os.close(pipe)
            _live.discard(self)
            self._process.wait()

    def _drop_after_fork(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _after_fork_in_child() -> None:
    # A forked child (multiprocessing) does not exec, so close-on-exec does not help: it would keep the pipe open.
    for watchdog in list(_live):
        watchdog._drop_after_fork()
    _live.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
