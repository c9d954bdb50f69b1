"""How the driver and the process that plans, which Spark starts beside it, tell each other what to do: by files."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuerySignals:
    """Files in a folder of the driver; each says something by being there. Picklable."""

    folder: str

    @property
    def cuts(self) -> str:
        """The file with what a micro-batch did not read of what was planned for it (`Cuts`)."""
        return os.path.join(self.folder, "cuts")

    def stop(self) -> None:
        """Nothing more is planned."""
        self._set("stop")

    def is_stopped(self) -> bool:
        return self._is_set("stop")

    def drain(self) -> None:
        """All sources end where they have been read to."""
        self._set("drain")

    def is_drained(self) -> bool:
        return self._is_set("drain")

    def note_end(self) -> None:
        """The planning has seen that it is to end. Spark asks it only when all that was planned is committed."""
        self._set("stop-seen")

    def is_at_end(self) -> bool:
        return self._is_set("stop-seen")

    def note_pending(self, is_pending: bool) -> None:
        """Whether something waits for the clock alone."""
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
        with contextlib.suppress(FileNotFoundError):  # the folder goes when the query has ended
            open(self._path(name), "w").close()
