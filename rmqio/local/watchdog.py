"""Nothing outlives us: a watchdog process that kills what we started when we die, by whatever signal.

The watchdog is a `/bin/sh` that reads a pipe whose write end we hold. The kernel closes that end when we die, SIGKILL
included, on Linux and on macOS alike; the watchdog then sees end of file, kills the processes that it was told of and
removes the temporary folder. (PR_SET_PDEATHSIG is Linux only and fires when the *thread* that forked ends.)
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
# Each process leads a group of its own, which is killed with it: what a Java program has started must not outlive it.
# The wait before rm lets the killed processes vanish, or they could write into the folder that is being removed.
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

# The process registers itself before it becomes the real program, so no moment exists at which we could die with a
# child that the watchdog does not know. Its standard input is the pipe until then, and never afterwards.
_REGISTER_AND_RUN: Final = 'echo "+$$" >&0; exec "$@" </dev/null'

_live: weakref.WeakSet[Watchdog] = weakref.WeakSet()


class Watchdog:
    """Starts processes that end when this process ends. Not inherited by forks: a child of ours is not their owner."""

    def __init__(self, temporary_dir: Path | None = None, *, hold: int | None = None) -> None:
        """`temporary_dir` is removed in the end. `hold` is a file descriptor that the watchdog inherits: a lock on that
        file lasts until everything is killed, whatever becomes of us, if the caller closes its own copy.
        """
        read_end, self._pipe = os.pipe()  # both close-on-exec: what we or Beam execute later must not hold them
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "rmqio-watchdog", str(temporary_dir or "")],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                pass_fds=() if hold is None else (hold,),
                start_new_session=True,  # the terminal's Ctrl-C is for us, not for it
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
        """Start `command` in a session of its own, with both outputs appended to the file `output`."""
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
        """Call once the process `pid` has been reaped, so that its number can be reused by another process."""
        with contextlib.suppress(OSError):  # a watchdog that somebody killed has nothing to forget
            os.write(self._pipe, b"-%d\n" % pid)

    def close(self) -> None:
        """End the watchdog, which kills what it still knows and removes the temporary folder. Idempotent."""
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
