"""The state folder: a folder for each job, and that of the supervisor. Programs talk to the supervisor by its files.

    STATE/NAME/checkpoint    the state of the job, for its runner
    STATE/NAME/job.sql       the text that it runs
    STATE/NAME/log           what it has printed; log.1, log.2: earlier
    STATE/NAME/status.json
    STATE/.supervisor/lock, requests

A job `group/name` has the folder `group+name`: no name has a `+`, and a group and a job can have the same name.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rmqio.errors import LocalError

CHECKING: Final = "checking"
RUNNING: Final = "running"
STOPPING: Final = "stopping"
STOPPED: Final = "stopped"
DONE: Final = "done"
RESTARTING: Final = "restarting"
REFUSED: Final = "refused"
DOWN: Final = "down"
"""Its supervisor is not there, or has not started it yet."""
"""It was stopped together with the supervisor, and starts together with it."""

UNCHANGED: Final = 3
"""The exit status of a check: the text has the same plan as the one that runs."""


@dataclass(slots=True)
class Status:
    """The state of a job, as far as it is known.

    Attributes:
      since: when it entered its state, in Unix seconds.
      restarts: how often the present text was started again after a failure.
      error: the last failure.
      refused: why the newest text of the file does not run.
      began: when it was started first, in Unix seconds, since it was done or new; 0: not yet.
    """

    name: str
    state: str = CHECKING
    since: float = 0.0
    restarts: int = 0
    pid: int | None = None
    error: str = ""
    refused: str = ""
    began: float = 0.0


class JobFolder:
    """The files of a job."""

    def __init__(self, state: Path, name: str) -> None:
        self.name = name
        self.path = state / name.replace("/", "+")
        self.checkpoint, self.log, self.lock = (self.path / each for each in ("checkpoint", "log", "lock"))
        self.text, self.candidate, self.status = (self.path / each for each in ("job.sql", "next.sql", "status.json"))

    def read_text(self) -> bytes | None:
        """Returns the text that the job runs; None: there is none yet."""
        try:
            return self.text.read_bytes()
        except FileNotFoundError:
            return None

    def read_status(self) -> Status | None:
        """Returns the status; None: there is none, or of another version."""
        try:
            return Status(**json.loads(self.status.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def write_status(self, status: Status) -> None:
        write(self.status, json.dumps(asdict(status), ensure_ascii=False, indent=1).encode())

    def forget(self) -> None:
        """Removes the job from the list. Its checkpoint and its logs stay."""
        for path in (self.text, self.candidate, self.status):
            path.unlink(missing_ok=True)


class StateFolder:
    """The folder of all jobs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._own = path / ".supervisor"
        self._requests = self._own / "requests"

    def job(self, name: str) -> JobFolder:
        return JobFolder(self.path, name)

    def statuses(self) -> list[Status]:
        """Returns the status of each job, by name."""
        found = [JobFolder(self.path, path.parent.name).read_status() for path in self.path.glob("[!.]*/status.json")]
        return sorted((each for each in found if each is not None), key=lambda each: each.name)

    @contextlib.contextmanager
    def supervised(self) -> Iterator[None]:
        """Makes this process the supervisor. Raises `LocalError` if there is another one."""
        try:
            self._requests.mkdir(parents=True, exist_ok=True)
            lock = Lock.take(self._own / "lock")
        except OSError as error:
            raise LocalError(f"cannot write the state folder {self.path}: {error.strerror}") from error
        if lock is None:
            owner = Lock.owner(self._own / "lock")
            raise LocalError(f"the jobs are supervised already, by process {owner or 'unknown'}: {self.path}")
        with contextlib.closing(lock):
            lock.write(os.getpid())
            yield

    def is_supervised(self) -> bool:
        """Returns whether a supervisor runs."""
        path = self._own / "lock"
        if not path.exists():
            return False
        lock = Lock.take(path)
        if lock is None:
            return True
        lock.close()
        return False

    def request(self, action: str, name: str) -> Path:
        """Asks the supervisor for something. The file that is returned exists until it has taken the request."""
        path = self._requests / f"{time.time_ns():020d}-{os.getpid()}.json"
        try:
            write(path, json.dumps({"action": action, "name": name}).encode())
        except OSError as error:
            raise LocalError(f"cannot write the state folder {self.path}: {error.strerror}") from error
        return path

    def requests(self) -> Iterator[tuple[str, str]]:
        """Yields actions and names in their order, each once. A request is gone when the next one is asked for."""
        for path in sorted(self._requests.glob("*.json")):
            try:
                found: Any = json.loads(path.read_bytes())
                yield str(found["action"]), str(found["name"])
            except (OSError, ValueError, KeyError, TypeError):
                pass  # not written by us
            path.unlink(missing_ok=True)


class Lock:
    """A lock on a file, which also holds the id of a process. A child that inherits the descriptor keeps it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Lock | None:
        """Returns None if another process has it."""
        import fcntl

        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor)

    @staticmethod
    def owner(path: Path) -> int | None:
        """Returns the process that has locked the file; only of use while the lock is taken."""
        try:
            return int(path.read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, pid: int) -> None:
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, b"%d\n" % pid, 0)

    def close(self) -> None:
        os.close(self.descriptor)


def write(path: Path, data: bytes) -> None:
    """Replaces a file: a reader sees the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
