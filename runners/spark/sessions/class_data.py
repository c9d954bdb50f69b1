"""Spark's classes in a file of the cache folder, so that the JVM of a local run starts in two thirds of the time.

The JVM maps the file instead of loading, checking and linking 15,000 classes from jars (application class-data
sharing). The first local Spark that ends normally writes it. A JVM crashes if the file is cut off, so it gets its name
only when the JVM that wrote it has finished, and is used only while it has the size that it had then.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import platformdirs
import pyspark

VARIABLE: Final = "RMQIO_SPARK_CLASS_DATA"
"""0 turns it off."""
FLAGS: Final = ("-XX:+UseSerialGC",)
"""A local JVM's collector: with a heap of a gigabyte, one that works in the background costs more than it saves."""
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""A file that does not fit is left out; that is nothing to warn of."""
_USERS_OWN: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_USERS_SETTINGS: Final = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_KEPT_S: Final = 60 * 86_400.0


class ClassData:
    """The file for one Java and one Spark, and this process's part in it.

    Args:
      settings: of Spark, all that are given.

    Attributes:
      options: of the JVM; none where it is turned off, or where the user gives options of the JVM's own kind, which
        could contradict these.
      is_made: whether the JVM writes the file when it ends. That takes some seconds, for which nobody needs to wait.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.is_made = False
        self.options: tuple[str, ...] = ()
        given = [*map(os.environ.get, _USERS_OWN), *map(settings.get, _USERS_SETTINGS)]
        if os.environ.get(VARIABLE) == "0" or any(text and "-X" in text for text in given):
            return
        self.options = FLAGS
        with contextlib.suppress(OSError):  # a folder that cannot be written, or no Java: Spark says what is wrong
            self._file = _cache_dir() / "spark" / f"classes-{_key()}.jsa"
            self._new, self._maker = self._file.with_suffix(".new"), self._file.with_suffix(".maker")
            self._adopt()
            if _is_whole(self._file):
                os.utime(self._file)
                self.options = (*FLAGS, *_QUIET, f"-XX:SharedArchiveFile={shlex.quote(str(self._file))}")
            elif self._may_make():
                self.is_made = True
                self.options = (*FLAGS, *_QUIET, f"-XX:ArchiveClassesAtExit={shlex.quote(str(self._new))}")

    def started(self, jvm: int) -> None:
        """Called with the process id of the JVM. It may end after this process."""
        if self.is_made:
            with contextlib.suppress(OSError):
                self._maker.write_text(_named(jvm))

    def drop(self) -> None:
        """Called when a JVM with these options does not start: no later one uses the file."""
        if self.options and hasattr(self, "_file"):
            for each in (self._file, self._new, self._maker):
                with contextlib.suppress(OSError):
                    each.unlink(missing_ok=True)
        self.options, self.is_made = (), False

    def _may_make(self) -> bool:
        """Whether no other process makes the file at the moment."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._maker.open("x") as file:
                file.write(_named(os.getpid()))
        except FileExistsError:
            return False
        for old in self._file.parent.glob("classes-*"):  # of another Java or Spark, not used for long
            if time.time() - old.stat().st_mtime > _KEPT_S:
                old.unlink(missing_ok=True)
        return True

    def _adopt(self) -> None:
        """Gives the file its name if the JVM that has written it has ended. If it was killed, the file goes."""
        try:
            maker = self._maker.read_text()
        except (OSError, ValueError):
            return
        if _is_alive(maker):
            return
        if _has_header(self._new):
            _size_of(self._file).write_text(json.dumps({"size": self._new.stat().st_size}))
            self._new.rename(self._file)
        self._new.unlink(missing_ok=True)
        self._maker.unlink(missing_ok=True)


def _cache_dir() -> Path:
    """Return the cache folder of `rmqio.local`, which a runner does not import."""
    given = os.environ.get("RMQIO_CACHE")
    return Path(given) if given else platformdirs.user_cache_path("rmqio")


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
    return " " not in maker or _named(process) == maker


def _key() -> str:
    """Changes with Java, Spark and the options. Raises `OSError` if there is no Java."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise OSError("no java")
    real = Path(java).resolve(strict=True)
    release = real.parent.parent / "release"
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    parts: Iterable[object] = (
        real,
        release.read_bytes() if release.exists() else real.stat().st_mtime_ns,
        pyspark.__version__,
        spark,
        spark.stat().st_mtime_ns,
        FLAGS,
    )
    return hashlib.blake2b(repr(tuple(parts)).encode(), digest_size=8).hexdigest()
