"""A program's classes in a file of the cache folder, so that its JVM starts in two thirds of the time or less.

The JVM maps the file instead of loading, checking and linking thousands of classes from jars (application class-data
sharing). A JVM writes it when it ends normally. A JVM crashes if the file is cut off, so it gets its name only
when the JVM that wrote it has finished, and is used only while it has the size that it had then.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Final

import platformdirs

_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""A file that does not fit is left out; that is nothing to warn of."""
_KEPT_S: Final = 60 * 86_400.0


class ClassData:
    """The file of one program on one Java, and this process's part in it. Off until `look` finds a file or makes one.

    Attributes:
      options: of the JVM.
      is_made: whether the JVM writes the file when it ends. That takes some seconds, for which nobody needs to wait.
    """

    def __init__(self) -> None:
        self.is_made = False
        self.options: tuple[str, ...] = ()
        self._file: Path | None = None

    def look(self, program: str, key: str, *, makes: bool = True) -> None:
        """Adds the options that map the file, or make it. The first JVM makes none: making takes seconds, and in a
        container each start may be the first one.

        Args:
          program: a folder in the cache.
          key: changes with all that the file depends on.
          makes: whether this JVM may make the file if there is none.

        Raises `OSError` if the folder cannot be written.
        """
        self._file = cache_dir() / program / f"classes-{key}.jsa"
        for maker in self._file.parent.glob("classes-*.maker"):
            _adopt(maker)
        if _is_whole(self._file):
            os.utime(self._file)
            self.options = (*self.options, *_QUIET, f"-XX:SharedArchiveFile={self._file}")
        elif makes and self._is_second() and self._may_make():
            self.is_made = True
            self.options = (*self.options, *_QUIET, f"-XX:ArchiveClassesAtExit={self._file.with_suffix('.new')}")

    def started(self, jvm: int) -> None:
        """Called with the process id of the JVM. It may end after this process."""
        if self.is_made and self._file is not None:
            with contextlib.suppress(OSError):
                self._file.with_suffix(".maker").write_text(_named(jvm))

    def drop(self) -> None:
        """Called when a JVM with these options does not start: no later one uses the file."""
        if self.options and self._file is not None:
            for suffix in (".jsa", ".new", ".maker"):
                with contextlib.suppress(OSError):
                    self._file.with_suffix(suffix).unlink(missing_ok=True)
        self.options, self.is_made = (), False

    def _is_second(self) -> bool:
        """Whether another JVM has looked for the file before, and this folder still says so."""
        assert self._file is not None
        before = self._file.with_suffix(".first")
        if before.exists():
            return True
        self._file.parent.mkdir(parents=True, exist_ok=True)
        before.touch()
        return False

    def _may_make(self) -> bool:
        """Whether no other process makes the file at the moment."""
        assert self._file is not None
        self._file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._file.with_suffix(".maker").open("x") as file:
                file.write(_named(os.getpid()))
        except FileExistsError:
            return False
        for old in self._file.parent.glob("classes-*"):  # of another Java or program, not used for long
            if time.time() - old.stat().st_mtime > _KEPT_S:
                old.unlink(missing_ok=True)
        return True


def cache_dir() -> Path:
    """Return the cache folder, as `rmqio.local.fetch` does; that module takes longer to import."""
    given = os.environ.get("RMQIO_CACHE")
    return Path(given) if given else platformdirs.user_cache_path("rmqio")


def _adopt(maker: Path) -> None:
    """Give a file its name if the JVM that has written it has ended. If the JVM was killed, the file goes."""
    file, new = maker.with_suffix(".jsa"), maker.with_suffix(".new")
    try:
        process = maker.read_text()
    except (OSError, ValueError):
        return
    if _is_alive(process):
        return
    if _has_header(new):
        _size_of(file).write_text(json.dumps({"size": new.stat().st_size}))
        new.rename(file)
    new.unlink(missing_ok=True)
    maker.unlink(missing_ok=True)


def _size_of(file: Path) -> Path:
    return file.with_suffix(".json")


def _is_whole(file: Path) -> bool:
    try:
        return bool(file.stat().st_size == json.loads(_size_of(file).read_text())["size"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _has_header(file: Path) -> bool:
    """Whether the JVM has written all of it: the header comes last."""
    try:
        with file.open("rb") as opened:
            return any(opened.read(4))
    except OSError:
        return False


def _named(process: int) -> str:
    """Return the process id, and where the system tells it the time of its start: ids are used again."""
    try:
        started = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return str(process)
    return f"{process} {started}"


def _is_alive(maker: str) -> bool:
    """Whether the process of this name runs."""
    try:
        process = int(maker.split()[0])
        if process <= 0:  # a group of processes
            return False
        os.kill(process, 0)
    except PermissionError:
        pass
    except (OSError, OverflowError, ValueError, IndexError):
        return False
    return not _is_zombie(process) and (" " not in maker or _named(process) == maker)


def _is_zombie(process: int) -> bool:
    """Whether it has ended, and its parent has not asked for its exit status yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False
