"""The filters that Spark has pushed for one `load()`, in all queries.

Spark keeps one read for a `load()`: filters that it pushes for a query, or for a side of a join, replace those of
another one, which then reads the same partitions. So each read covers what all filters of its `load()` leave.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from rmqio.pyspark.reading.pushdown import Narrowing

_LOGGER = logging.getLogger(__name__)
_KEPT_S: Final = 7 * 86_400
"""A file without new filters for this long is removed. Every query pushes its filters again when it is planned."""


def widened(load: str, narrowing: Narrowing) -> Narrowing:
    """Returns what is left by these filters or by any that Spark has pushed before for the same `load()`.

    They are in a file, since Spark plans in several processes on the driver. Without the file, nothing is skipped.

    Args:
      load: the name of the `load()`.
    """
    try:
        path = _folder() / load
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_as_json(narrowing)) + "\n")  # first, so that the other of two sees it
        for line in path.read_text("utf-8").splitlines():
            narrowing |= _from_json(json.loads(line))
    except (OSError, ValueError) as error:
        _LOGGER.warning("pushFilters has no effect: filters of other queries are not known (%s)", error)
        return Narrowing()
    return narrowing


def _folder() -> Path:
    """Returns the folder of this user's files, without old ones. Raises `OSError` if it is another user's."""
    folder = Path(tempfile.gettempdir()) / f"rmqio-filters-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"other users can write to {folder}: remove it")
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            if time.time() - file.stat().st_mtime > _KEPT_S:
                file.unlink()
    return folder


def _as_json(narrowing: Narrowing) -> dict[str, Any]:
    queues = [[column, list(values)] for column, values in narrowing.queues]
    tags = None if narrowing.tags is None else sorted(narrowing.tags)
    bounds = {name: getattr(narrowing, name) for name in ("begin", "end", "since_ms", "until_ms")}
    return {"queues": queues, "tags": tags, **bounds}


def _from_json(found: dict[str, Any]) -> Narrowing:
    queues = tuple((column, frozenset(values)) for column, values in found.pop("queues"))
    tags = found.pop("tags")
    return Narrowing(queues, tags=None if tags is None else frozenset(tags), **found)
