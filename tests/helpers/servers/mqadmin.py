"""RocketMQ's own operator's tool, `mqadmin`, from the jars of the local broker."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rmqio.local.config import logback_xml
from rmqio.local.install import find_programs
from tests.helpers.waiting import at_most

_MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"


def mqadmin(folder: Path, *words: str) -> str:
    """Runs `mqadmin` and returns what it prints: its exit status is 0 also for a failure."""
    programs = find_programs()
    (folder / "rmq.logback.xml").write_text(logback_xml(folder / "log.txt"), encoding="utf-8")
    command = [
        str(programs.java.executable), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
        f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}",
        "-cp", os.pathsep.join(map(str, [folder, *programs.jars])), _MAIN, *words,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(180), check=False, cwd=folder)
    return done.stdout + done.stderr
