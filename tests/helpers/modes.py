"""The marker `shows(Mode, ...)`: what a test says that it runs on, and what it really started.

README's table of what runners do names tests. A cell that says "yes" needs a test with the marker for its mode
(`named_tests.problem`), and a test that carries it fails if it has started no pipeline in that mode, neither in the
tests' own process nor in programs that it has started. Parameters may carry it, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.site import sitecustomize as watching

MARK: Final = "shows"
SITE: Final = str(Path(watching.__file__).parent)


def shown_by(marks: Iterable[pytest.Mark]) -> set[str]:
    """The values of the modes that these marks name."""
    return {mode.value for mark in marks if mark.name == MARK for mode in mark.args}


class Notes:
    """What was started since the last test began."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self) -> None:
        self._path.write_text("")

    def started(self) -> set[str]:
        return set(self._path.read_text().splitlines())

    @contextmanager
    def in_programs(self) -> Iterator[None]:
        """Programs that are started meanwhile note it, too."""
        before = {name: os.environ.get(name) for name in (watching.VARIABLE, "PYTHONPATH")}
        os.environ[watching.VARIABLE] = str(self._path)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SITE, before["PYTHONPATH"]]))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def unstarted(item: pytest.Item, notes: Notes) -> str | None:
    """What a test claims in vain; None: nothing."""
    missing = shown_by(item.iter_markers(MARK)) - notes.started()
    if not missing:
        return None
    return f"it carries the marker {MARK} for what it has not started: {', '.join(sorted(missing))}"
