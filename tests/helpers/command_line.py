"""Runs command lines of `rmqio` in this process, on a real or a fake cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqio.cli.main import main


class Tool:
    """Called with a command line, it returns what the command has printed, and keeps the standard error as `err`.

    Fails if the exit status is another one than `status`.
    """

    def __init__(self, name_server: str, capsys: pytest.CaptureFixture[str], *more: str) -> None:
        self._options, self._capsys = ("--name_server", name_server, *more), capsys
        self.err = ""

    def __call__(self, *arguments: str, status: int = 0) -> str:
        self._capsys.readouterr()
        found = main([*arguments, *self._options])
        out, self.err = self._capsys.readouterr()
        assert found == status, self.err
        return out

    def json(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", status=status))

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]

    def bodies(self, *arguments: str) -> list[str]:
        return [line["body"] for line in self.lines(*arguments)]
