"""A pipeline that waits at an element until something has been done to a server."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam


class Hold(beam.DoFn):
    """Passes elements on. When it has passed on `after` of them, it waits for `during`.

    The folder is how the two find each other.
    """

    def __init__(self, folder: Path, after: int = 0) -> None:
        self._folder = folder
        self._after = after

    def process(self, element: Any) -> Iterator[Any]:
        self._after -= 1
        if self._after == -1:
            (self._folder / "reading").touch()
            _wait_for(self._folder / "done")
        yield element


@contextlib.contextmanager
def during(folder: Path, action: Callable[[], object]) -> Iterator[None]:
    """Does it while the pipeline waits. Fails if it never came to that."""

    def act() -> None:
        _wait_for(folder / "reading")
        try:
            action()
        finally:
            (folder / "done").touch()

    acting = threading.Thread(target=act)
    acting.start()
    try:
        yield
    finally:
        began = (folder / "reading").exists()
        (folder / "reading").touch()
        acting.join()
        assert began, "the pipeline never came to the element at which it waits"


def _wait_for(file: Path) -> None:
    until = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < until, f"{file} never came"
        time.sleep(0.01)
