"""Signals between the driver and the planning process, which Spark starts beside it. They are files."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuerySignals:
    """Files in a folder of the driver. Each is a signal by its existence. Picklable."""

    folder: str

    @property
    def cuts(self) -> str:
        """The path of the file that says which parts a micro-batch did not read to their planned end (`Cuts`)."""
        return os.path.join(self.folder, "cuts")

    def stop(self) -> None:
        """Stops the planning: no more micro-batches are planned."""
        self._set("stop")

    def is_stopped(self) -> bool:
        return self._is_set("stop")

    def drain(self) -> None:
        """Makes all sources end where they have been read to."""
        self._set("drain")

    def is_drained(self) -> bool:
        return self._is_set("drain")

    def note_end(self) -> None:
        """Notes that the planning is at its end. Spark asks it only after all that was planned is committed."""
        self._set("stop-seen")

    def is_at_end(self) -> bool:
        return self._is_set("stop-seen")

    def note_pending(self, is_pending: bool) -> None:
        """Notes whether anything waits for the clock alone."""
        if is_pending:
            self._set("pending")
            return
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path("pending"))

    def is_pending(self) -> bool:
        return self._is_set("pending")

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _is_set(self, name: str) -> bool:
        return os.path.exists(self._path(name))

    def _set(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # the folder is removed when the query has ended
            open(self._path(name), "w").close()
