"""Runs one shell command at the lowest priority beside another: `python -m tests.helpers.beside LOG QUIET MAIN`.

The main command has this terminal. The other one writes to the file LOG, which is printed when both have ended. If the
main command fails or is interrupted, the other one is ended with everything that it has started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

_OF_THE_SESSION = "echo 19 2>&- >/proc/self/autogroup || :"
"""Linux often shares the processor by sessions, and compares `nice` within a session only. This one is a session."""


def main(log: Path, quiet: str, command: str) -> int:
    """Returns the exit status of the main command, or that of the other one if the main command has succeeded."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        beside = subprocess.Popen(
            ["nice", "-n", "19", "sh", "-c", f"{_OF_THE_SESSION}; {quiet}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that a signal reaches all that it starts
        )
    try:
        status = subprocess.run(command, shell=True, check=False).returncode or beside.wait()
        if beside.poll() is not None:
            sys.stdout.write(log.read_text(errors="replace"))
        return status
    finally:
        if beside.poll() is None:
            os.killpg(beside.pid, signal.SIGTERM)
            beside.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(130)
