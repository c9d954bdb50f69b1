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
    """One program, and the text at its head: the docstring of a module, or the comment of a shell script."""

    path: Path

    @property
    def source(self) -> str:
        return self.path.read_text()

    @property
    def text(self) -> str:
        if self.path.suffix == ".py":
            return ast.get_docstring(ast.parse(self.source)) or ""
        lines = self.source.splitlines()[1:]  # without the interpreter
        head = lines[: next(at for at, line in enumerate(lines) if not line.startswith("#"))]
        return "\n".join(line.removeprefix("#").removeprefix(" ") for line in head)

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
        """The options for topics, with their defaults. A shell script has those of the program that it runs."""
        if self.path.suffix == ".sh":
            (other,) = set(re.findall(r"\w+\.py", self.source))
            return Program(FOLDER / other).topics
        return dict(re.findall(r'add_argument\("--(\w+_topic)", default="([^"]+)"', self.source))


PROGRAMS: Final = {path.name: Program(path) for path in sorted(FOLDER.iterdir()) if path.suffix in (".py", ".sh")}
