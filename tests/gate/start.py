"""Sets up the environment and runs the gate in it: `python3 -m tests.gate.start`, with any Python that has venv.

A set-up that fails is a gate that fails: it ends with the same lines and reports.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.gate.ending import SIGNALS, Ended, heed_signals
from tests.gate.patience import measured
from tests.gate.report import CANNOT_BEGIN, ROOT, End, Report

_PYTHON = ROOT / ".venv" / "bin" / "python"
_MOST_S = 1_200
"""With empty caches and a slow network, everything is here in a quarter of an hour, if the machine is quiet."""


def main() -> None:
    """Raises `SystemExit` if the set-up fails; otherwise, this process becomes the gate."""
    began = time.time()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # thousand processes would compile all modules anew
    os.chdir(ROOT)
    report = make = None
    try:
        heed_signals()
        report = Report(ROOT / "build", began)
        make = subprocess.Popen(["make", "--no-print-directory", ".venv/.installed"], start_new_session=True)
        status = make.wait(_MOST_S * measured())
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the gate can heed them
    except (Ended, OSError, ValueError, subprocess.TimeoutExpired) as error:
        if make is not None:
            os.killpg(make.pid, signal.SIGKILL)
            make.wait()
        if report is None:
            print(CANNOT_BEGIN.format(error), flush=True)
        else:
            report.close(End(wrong=(f"set-up: {error}",)))
        sys.exit(error.status if isinstance(error, Ended) else 1)
    if status:
        sys.exit(report.close(End(wrong=(f"set-up: make ended with status {status}",))))
    os.environ["RMQIO_GATE_BEGAN"] = str(began)
    try:
        os.execv(_PYTHON, [str(_PYTHON), "-m", "tests.gate", *sys.argv[1:]])
    except OSError as error:
        sys.exit(report.close(End(wrong=(f"set-up: {_PYTHON}: {error}",))))


if __name__ == "__main__":
    main()
