"""The page docs/first-pipeline.md, as a reader follows it: each command, and what the page says that it prints."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.examples.programs import ROOT
from tests.helpers.waiting import at_most

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.examples, pytest.mark.timeout(600)]

PAGE: Final = ROOT / "docs" / "first-pipeline.md"
_BLOCK: Final = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _console(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the commands of a block, each with the lines that it prints."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *printed = part.splitlines()
        yield command, printed


def _comparable(lines: list[str]) -> list[str]:
    """Returns lines without what differs from run to run: numbers, IDs, folders, the order of queues."""
    text = "\n".join(line.rstrip() for line in lines)
    text = re.sub(r"\b[0-9A-F]{32}\b", "ID", text)
    text = re.sub(r"(?<= in )/\S+", "FOLDER", text)
    text = text.replace("paid: first order", "paid: 3")  # whichever came last
    return sorted(re.sub(r"\d+", "#", text).splitlines())


class _Reader:
    """Somebody who follows the page in a folder, in an environment that has what its `pip install`s name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        hidden = ("SPARK", "PYSPARK", "NAMESRV", "RMQIO_LOG")
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self._environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self._environment['PATH']}"
        self._environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        self._broker: subprocess.Popen[str] | None = None

    def close(self) -> None:
        if self._broker is not None:
            with self._broker:
                self._broker.send_signal(signal.SIGINT)
            assert self._broker.returncode in (0, -signal.SIGINT)

    def types(self, command: str, printed: list[str]) -> None:
        words = shlex.split(command, comments=True)
        if words[:2] == ["rmqio", "local"]:
            self._starts_a_broker(command, printed)
        elif words[0] == "export":
            (name, _, _) = words[1].partition("=")
            assert self._environment[name]
        elif words[0] != "pip":
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=at_most(300),
            )
            assert done.returncode == 0, done.stdout
            assert _comparable(done.stdout.splitlines()) == _comparable(printed), f"$ {command}\n{done.stdout}"

    def saves(self, code: str) -> None:
        """Each block of Python is the whole program."""
        (self._folder / "pipeline.py").write_text(code)

    def _starts_a_broker(self, command: str, printed: list[str]) -> None:
        self._broker = subprocess.Popen(
            shlex.split(command),
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._broker.stdout is not None
        said = [self._broker.stdout.readline().rstrip() for _ in printed]
        assert _comparable(said) == _comparable(printed)
        (self._environment["NAMESRV_ADDR"],) = [line for line in said if re.fullmatch(r"[\d.]+:\d+", line)]


def test_the_page_can_be_followed(tmp_path: Path) -> None:
    reader = _Reader(tmp_path)
    commands = 0
    try:
        for kind, text in _BLOCK.findall(PAGE.read_text()):
            if kind == "python":
                reader.saves(text)
                continue
            for command, printed in _console(text):
                reader.types(command, printed)
                commands += 1
    finally:
        reader.close()
    assert commands == 11
