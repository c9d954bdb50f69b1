"""The resident set of this process."""

from __future__ import annotations

import os
import subprocess


def rss_mb() -> float:
    """Resident set in MB (10^6 bytes): from /proc where there is one, else from `ps`."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except FileNotFoundError:
        said = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True)
        return int(said.stdout) * 1024 / 1e6
