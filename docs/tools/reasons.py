"""Finds in the output of Zensical why it failed, or which complaint of its plugins is an error."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")
_TRACEBACK: Final = "Traceback (most recent call last):"
_COMPLAINT: Final = re.compile(r"^(griffe|mkdocstrings): (?:(\S+?)(:\d+): )?(.+)$", re.MULTILINE)
"""Zensical ends with status 0 whatever the reader of docstrings complains about."""
_ON_A_PAGE: Final = re.compile(r"^(?:Warning|Error): (.+)\n\s*╭─\[ (\S+) \]", re.MULTILINE)
_CONFIGURATION: Final = re.compile(r"^Error: ([^╭]+)\Z", re.MULTILINE)
_IN_PYTHON: Final = re.compile(r"^RuntimeError: Python error: (.+)$", re.MULTILINE)
_RAISED: Final = re.compile(r"^(?!.*--strict)([A-Za-z_][\w.]*(?:: .*)?)$", re.MULTILINE)
_REFERENCE: Final = re.compile(r"Could not collect '(\S+)'")


def plain(output: str) -> str:
    """Returns what Zensical prints, without colours and the traceback that follows its own messages in strict mode."""
    text = _COLOUR.sub("", output)
    message, _, trace = text.partition(_TRACEBACK)
    return (message if "--strict" in trace else text).rstrip()


def reasons(output: str, status: int) -> list[str]:
    """Returns why a build failed, each with its file and line if they are known; nothing if it did not fail.

    An exception comes last: the complaints before it can be its consequences.
    """
    text = _COLOUR.sub("", output)
    before, _, trace = text.partition(_TRACEBACK)
    found = [
        f"{_source(path)}{line}: {tool}: {said}" if path else f"{tool}: {said}"
        for tool, path, line, said in _COMPLAINT.findall(text)
    ]
    if not status:
        return found
    found += [f"docs/{place}: {said}" for said, place in _ON_A_PAGE.findall(before)]
    found += [f"mkdocs.yml: {' '.join(said.split())}" for said in _CONFIGURATION.findall(before)]
    found += [_with_page(said) for said in (_IN_PYTHON.findall(trace) or _RAISED.findall(trace))[-1:]]
    if status < 0:
        found.append(f"Zensical was ended by {signal.Signals(-status).name}")
    return found or [(text.splitlines() or ["Zensical said nothing"])[-1] + f" (status {status})"]


def _source(path: str) -> str:
    """Returns a path in the repository."""
    found = (_ROOT / path).resolve()
    return str(found.relative_to(_ROOT)) if found.is_relative_to(_ROOT) else path


def _with_page(said: str) -> str:
    """Puts before the name of a missing object the page that shows it."""
    if missing := _REFERENCE.search(said):
        for page in sorted((_ROOT / "docs").rglob("*.md")):
            for number, line in enumerate(page.read_text().splitlines(), 1):
                if line.strip() == f"::: {missing[1]}":
                    return f"{page.relative_to(_ROOT)}:{number}: {said}"
    return said
