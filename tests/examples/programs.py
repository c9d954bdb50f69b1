"""The programs of `examples/` as their texts describe them: how they are run, and what they print."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "examples"
_INDENT: Final = "    "


@dataclass(frozen=True)
class Program:
    """One program, and its docstring."""

    path: Path

    @property
    def source(self) -> str:
        return self.path.read_text()

    @property
    def text(self) -> str:
        return ast.get_docstring(ast.parse(self.source)) or ""

    @property
    def blocks(self) -> list[list[str]]:
        """The indented blocks of the text: the commands, and what they print."""
        found = re.findall(rf"(?m)(?:^{_INDENT}.*\n?)+", self.text)
        return [[line.removeprefix(_INDENT) for line in block.splitlines()] for block in found]

    @property
    def commands(self) -> list[list[str]]:
        """The words of the commands: the broker's, and the program's."""
        return [shlex.split(line.removesuffix(" &")) for line in self.blocks[0]]

    @property
    def prints(self) -> list[str]:
        """Lines that the text shows, out of those that the program prints."""
        return self.blocks[1] if len(self.blocks) > 1 else []

    @property
    def topics(self) -> dict[str, str]:
        """The options for topics, with their defaults."""
        return dict(re.findall(r'add_argument\("--(\w+_topic)", default="([^"]+)"', self.source))


PROGRAMS: Final = {path.name: Program(path) for path in sorted(FOLDER.glob("*.py"))}
