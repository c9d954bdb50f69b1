"""One pipeline at a time on a checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fcntl", reason="there are no such locks")

from rmqio.errors import LocalError
from rmqio.runners.checkpoints import Exclusive


def test_the_error_of_the_second_one_names_who_has_it(tmp_path: Path) -> None:
    folder = f"file:{tmp_path}/with space"
    first = Exclusive(folder)
    with pytest.raises(LocalError, match=rf"with space is in use: process {os.getpid()} "):
        Exclusive(folder)
    first.close()
    first.close()
    Exclusive(folder).close()


def test_the_lock_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    source = (
        "import os, sys\nfrom rmqio.runners.checkpoints import Exclusive\n"
        "held = Exclusive(sys.argv[1])\nprint('held', flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-W", "ignore", "-c", source, f"file:{tmp_path}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(LocalError, match=f"process {process.pid} "):
            Exclusive(f"file:{tmp_path}")
        process.kill()
        process.wait()
        Exclusive(f"file:{tmp_path}").close()


def test_folders_elsewhere_are_left_to_spark() -> None:
    Exclusive("s3a://bucket/a").close()
