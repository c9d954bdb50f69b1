"""Sets up the environment and runs the gate in it: `python3 -m tests.gate.start`, with any Python that has venv.

A set-up that fails is a gate that fails: it ends with the same lines and reports.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.gate.report import CANNOT_BEGIN, ROOT, End, Report

_PYTHON = ROOT / ".venv" / "bin" / "python"
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MOST_S = 1_200
"""With empty caches and a slow network, everything is here in a quarter of an hour."""


def main() -> None:
    """Raises `SystemExit` if the set-up fails; otherwise, this process becomes the gate."""
    began = time.time()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # thousand processes would compile all modules anew
    os.chdir(ROOT)
    for number in _ENDING:
        signal.signal(number, _end)
    try:
        report = Report(ROOT / "build", began)
    except (_Ended, OSError) as error:
        print(CANNOT_BEGIN.format(error), flush=True)
        sys.exit(error.status if isinstance(error, _Ended) else 1)
    make = subprocess.Popen(["make", "--no-print-directory", ".venv/.installed"], start_new_session=True)
    try:
        status = make.wait(_MOST_S)
    except (_Ended, subprocess.TimeoutExpired) as error:
        os.killpg(make.pid, signal.SIGKILL)
        make.wait()
        why = str(error) if isinstance(error, _Ended) else f"a set-up that takes more than {_MOST_S} s"
        report.close(End(wrong=(f"the gate was ended by {why}",)))
        sys.exit(error.status if isinstance(error, _Ended) else 1)
    if status:
        sys.exit(report.close(End(wrong=(f"set-up: make ended with status {status}",))))
    os.environ["RMQIO_GATE_BEGAN"] = str(began)
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # until the gate can heed them
    os.execv(_PYTHON, [str(_PYTHON), "-m", "tests.gate", *sys.argv[1:]])


class _Ended(Exception):
    """Raised by a signal. `status`: the exit status that a shell expects."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal.Signals(number).name} in its set-up")
        self.status = 128 + number


def _end(number: int, frame: object) -> None:
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise _Ended(number)


if __name__ == "__main__":
    main()
