"""A pipeline that waits at an element until something has been done to a server."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam

from tests.helpers.waiting import until


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
            until((self._folder / "done").exists, "the end of what happens meanwhile", still_s=120)
        yield element


@contextlib.contextmanager
def during(folder: Path, action: Callable[[], object]) -> Iterator[None]:
    """Does it while the pipeline waits. Fails if it never came to that."""

    def act() -> None:
        until((folder / "reading").exists, "the element at which the pipeline waits", still_s=120)
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
