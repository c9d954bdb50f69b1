"""Sets up the environment and runs the gate in it: `python3 -m tests.gate.start`, with any Python that has venv.

A set-up that fails is a gate that fails: it ends with the same lines and reports.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.gate.report import ROOT, End, Report

_PYTHON = ROOT / ".venv" / "bin" / "python"


def main() -> None:
    """Raises `SystemExit` if the set-up fails; otherwise, this process becomes the gate."""
    began = time.time()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # thousand processes would compile all modules anew
    os.chdir(ROOT)
    report = Report(ROOT / "build", began)
    make = subprocess.Popen(["make", "--no-print-directory", ".venv/.installed"], start_new_session=True)

    def end(number: int, frame: object) -> None:
        os.killpg(make.pid, signal.SIGTERM)
        make.wait()
        name = signal.Signals(number).name
        report.close(End(wrong=(f"the gate was ended by {name} in its set-up",)))
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    if status := make.wait():
        sys.exit(report.close(End(wrong=(f"set-up: make ended with status {status}",))))
    os.environ["RMQIO_GATE_BEGAN"] = str(began)
    os.execv(_PYTHON, [str(_PYTHON), "-m", "tests.gate", *sys.argv[1:]])


if __name__ == "__main__":
    main()
