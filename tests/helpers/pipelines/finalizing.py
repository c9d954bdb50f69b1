"""A finalizer that shows when it is called."""

from __future__ import annotations

import json
import uuid
from pathlib import Path


class Committed:
    """A finalizer that notes which micro-batches Spark has committed when it is called."""

    def __init__(self, checkpoint: Path, notes: Path) -> None:
        self._checkpoint, self._notes = checkpoint, notes

    def __call__(self) -> None:
        found = [each.name for each in (self._checkpoint / "commits").glob("[0-9]*")]
        (self._notes / uuid.uuid4().hex).write_text(json.dumps(found))
