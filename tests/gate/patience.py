"""How much longer everything takes on this machine at this moment than if it were quiet."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Final

from tests.helpers.waiting import PATIENCE, patience

_WORK: Final = "import time\nwhile time.process_time() < 0.5: sum(range(1000))"
_CPU_S: Final = 0.5
_MOST: Final = 4.0


def measured() -> float:
    """Returns 1.0 on a quiet machine and 2.0 if each of our processes gets half of a processor, or what is set.

    Raises `ValueError` if that is no number.
    """
    if PATIENCE in os.environ:
        return patience()
    began = time.monotonic()
    busy = [subprocess.Popen([sys.executable, "-S", "-c", _WORK]) for _ in os.sched_getaffinity(0)]
    for each in busy:
        each.wait()
    # A tenth of a second is the start of Python. Less than a third more is noise.
    factor = (time.monotonic() - began - 0.1) / _CPU_S
    return min(round(factor, 1), _MOST) if factor > 1.3 else 1.0
