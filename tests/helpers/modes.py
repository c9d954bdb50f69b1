"""The marker `shows(Mode, ...)`: the mode in which a test claims to run, checked against what it really started.

The table of docs/capabilities.md names tests. A cell that says "yes" needs a test that is marked for its mode
(`named_tests.problem`). A marked test fails if it has started no pipeline in that mode, neither in its own process nor
in programs that it has started. Parameters may also carry the marker.
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
    """Returns the values of the modes that these marks name."""
    return {mode.value for mark in marks if mark.name == MARK for mode in mark.args}


class Notes:
    """Notes which modes were started since the last test began."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self) -> None:
        self._path.write_text("")

    def started(self) -> set[str]:
        return set(self._path.read_text().splitlines())

    @contextmanager
    def in_programs(self) -> Iterator[None]:
        """Makes programs that are started inside the context note their modes as well."""
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
    """Returns what a test claims without showing it; None: nothing."""
    missing = shown_by(item.iter_markers(MARK)) - notes.started()
    if not missing:
        return None
    return f"it carries the marker {MARK} for what it has not started: {', '.join(sorted(missing))}"
