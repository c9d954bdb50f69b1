"""The command lines of README, docs and help texts, as they stand there, and what is special about some of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
KINDS: Final = {"python", "json", "sql", "text", "sh", "console", "yaml", ""}
"""The kinds of blocks that pages have."""
SPECIAL: Final[dict[str, dict[str, Any]]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_EXAMPLES: Final = re.compile(r"^examples?[^:\n]*:(.*(?:\n .*)*)", re.MULTILINE)
"""At the end of a help."""


class Line(NamedTuple):
    """A line that a reader types, and what the page shows below it. A help is a page."""

    page: str
    text: str
    prints: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"

    def of(self, table: str) -> Any:
        """Returns what a table of commands.toml has for the line."""
        return next((value for pattern, value in SPECIAL[table].items() if re.search(pattern, str(self))), None)


def lines_of(page: Path) -> Iterator[Line]:
    """Yields the lines of a page. Where there is a prompt, what has none is output."""
    for _, kind, text in _FENCE.findall(page.read_text()):
        assert kind in KINDS, f"{page}: a block of {kind!r}; known are {sorted(KINDS)}"
        joined = re.sub(r"\\\n\s*", "", text)
        if text.lstrip().startswith("$ "):
            for part in re.split(r"^\s*\$ ", joined, flags=re.MULTILINE)[1:]:
                line, *prints = part.splitlines()
                yield Line(_name(page), line, tuple(prints))
        elif kind in ("sh", "console") or (kind == "" and text.startswith("make ")):
            yield from (Line(_name(page), line.strip()) for line in joined.splitlines() if line.strip())


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def lines_of_helps() -> Iterator[Line]:
    """Yields the examples of all helps of `rmqio`."""
    from rmqio.cli.main import make_parser
    from rmqio.command_line.parser import Parser

    def below(parser: Parser) -> Iterator[Line]:
        commands = parser.commands  # which fills the parser
        for text in _EXAMPLES.findall(re.sub(r"\\\n\s*", "", parser.epilog or "")):
            for line in text.strip().splitlines():
                yield Line(f"{parser.prog} --help", line.strip() % {"prog": parser.prog})
        for each in commands.values():
            yield from below(each)

    yield from below(make_parser())


LINES: Final = [*(line for page in PAGES for line in lines_of(page)), *lines_of_helps()]
