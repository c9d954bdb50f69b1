"""The files of jobs: the state folder, by which programs talk to the supervisor, and the folder that it follows."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rmqio.errors import LocalError

# The files of a folder of jobs: which are new, changed or gone since the last look.

SUFFIX: Final = ".sql"
_NAME: Final = re.compile(r"\w[\w.-]*")
_SPELT: Final = "is ignored: the name of a job's file ends in .sql, in small letters"
_TOO_DEEP: Final = "is ignored: jobs are files of the folder and of its folders, and not of theirs: move it up"
NAMES: Final = "letters, digits, '_', '-' and '.', and does not begin with one of the last two"


@dataclass(frozen=True, slots=True)
class Found:
    """A file at a look. `text` is None if it cannot be read; `error` then says why."""

    path: Path
    text: bytes | None
    error: str = ""


@dataclass(slots=True)
class Changes:
    """The changes since the last look that have settled: two looks have seen the same."""

    offered: dict[str, Found] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)


def scan(folder: Path) -> dict[str, Found]:
    """Returns the files of both levels by the names of their jobs. Raises `OSError` if a folder cannot be listed."""
    found: dict[str, Found] = {}
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        if entry.name.startswith("."):
            continue
        path = folder / entry.name
        if entry.is_dir():
            for inner in sorted(os.listdir(path)):
                if inner.endswith(SUFFIX) and not inner.startswith(".") and not (path / inner).is_dir():
                    found[f"{entry.name}/{inner.removesuffix(SUFFIX)}"] = _read(path / inner)
        elif entry.name.endswith(SUFFIX):
            found[entry.name.removesuffix(SUFFIX)] = _read(path)
    return found


def overlooked(folder: Path, state: Path) -> dict[Path, str]:
    """Returns files that look like those of jobs and are none, with the reason. `state`: the state folder has others.

    Raises `OSError` if the folder cannot be listed.
    """
    found: dict[Path, str] = {}
    for entry in os.scandir(folder):
        inner = folder / entry.name
        if entry.name.startswith(".") or inner.absolute() == state:
            continue
        if not entry.is_dir():
            _overlook([inner], _SPELT, found)
            continue
        for where, folders, names in os.walk(inner):
            shown = [each for each in folders if not each.startswith(".")]
            folders[:] = [each for each in shown if Path(where, each).absolute() != state]
            is_second = Path(where) == inner
            _overlook((Path(where, each) for each in names), _SPELT if is_second else _TOO_DEEP, found)
    return dict(sorted(found.items()))


def _overlook(paths: Iterable[Path], reason: str, found: dict[Path, str]) -> None:
    for path in paths:
        is_taken = path.suffix == SUFFIX and reason == _SPELT
        if path.suffix.lower() == SUFFIX and not path.name.startswith(".") and not is_taken:
            found[path] = reason


def wrong_name(name: str) -> str:
    """Returns what is wrong with the name of a job; empty: nothing."""
    if all(_NAME.fullmatch(part) for part in name.split("/")):
        return ""
    return f"the name of a job is made of {NAMES}: rename the file or its folder"


class Watch:
    """Looks at a folder again and again. A file that is being written waits until two looks see the same text."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: dict[str, Found] = {}
        self._taken: dict[str, Found] = {}
        self._missing: set[str] = set()

    def look(self) -> Changes:
        """Returns what has changed. Raises `OSError` if the folder cannot be listed: then nothing has."""
        now = scan(self._folder)
        changes = Changes()
        for name, found in now.items():
            if self._last.get(name) == found != self._taken.get(name):
                changes.offered[name] = self._taken[name] = found
        missing = self._taken.keys() - now.keys()
        for name in sorted(missing & self._missing):
            changes.removed.append(name)
            del self._taken[name]
        self._last, self._missing = now, missing
        return changes


def _read(path: Path) -> Found:
    try:
        return Found(path, path.read_bytes())
    except OSError as error:
        return Found(path, None, f"cannot read {path}: {error.strerror}")


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
