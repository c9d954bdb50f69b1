"""Programs of Debian that a machine has not, unpacked into the user's cache folder: nothing is installed."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import platformdirs
import pytest

from tests.helpers.waiting import at_most


def unpacked(*packages: str) -> Path:
    """Returns the folder below which the files of these packages are, as below /. Skips the test if it cannot."""
    name = packages[0]
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip(f"this machine has no {name}, and no packages of Debian to unpack it from")
    cache = Path(platformdirs.user_cache_dir("rmqio")) / name
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "whole").exists():
            command = ["apt-get", "download", *packages]
            got = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=at_most(300))
            if got.returncode:
                pytest.skip(f"{name} cannot be fetched from Debian: {got.stderr.strip().splitlines()[-1:]}")
            for each in cache.glob("*.deb"):
                subprocess.run(["dpkg", "-x", each.name, "root"], cwd=cache, check=True)
                each.unlink()
            (cache / "whole").touch()
    return cache / "root"
