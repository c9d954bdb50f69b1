"""What the gate tells a job of pytest in its environment, and the outcomes of tests that it is told."""

from __future__ import annotations

from typing import Final

OUTCOMES_FILE: Final = "RMQIO_GATE_OUTCOMES_FILE"
TOLD_FD: Final = "RMQIO_GATE_TOLD_FD"
NAME: Final = "RMQIO_GATE_JOB"
DEADLINE: Final = "RMQIO_GATE_DEADLINE"
LAST_BEGIN: Final = "RMQIO_GATE_LAST_BEGIN"
"""After this time, in seconds since 1970, no test begins."""
LATE: Final = "a thread failed after all tests"
"""How a line about a job begins that no test is wrong for."""
LEFT_OUT: Final = "left_out"
OUTCOMES: Final = ("passed", "wrong", "inconclusive", "skipped", LEFT_OUT)
