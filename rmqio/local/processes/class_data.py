"""RocketMQ's classes in a file of the cache folder, so that a broker needs half of the CPU for its start.

A JVM maps the file instead of loading, checking and linking thousands of classes from jars (application class-data
sharing). The second broker lists the classes that it loads, and a JVM in the background makes the file from the list.
The first broker makes none: in a container, each may be the first one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rmqio.local.fetch import cache_dir
from rmqio.local.processes.java import USERS_OWN, Java, identity_of

VARIABLE: Final = "RMQIO_LOCAL_CLASS_DATA"
"""0 turns it off."""
_MINIMUM_JAVA: Final = 13
_OF_THE_KIND: Final = ("-Xshare", "SharedArchiveFile", "SharedClassListFile", "DumpLoadedClassList", "ArchiveClasses")
"""Options of a user that say where a JVM has its classes from."""
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""A file that does not fit is left out; that is nothing to warn of."""
_AGAIN_S: Final = 3600.0
"""After this time, a broker makes the file that an earlier one began and did not end."""
_KEPT_S: Final = 60 * 86_400.0
# Its arguments are the new file, the start of its name, the list, and the command. A JVM crashes if its file is cut
# off, so the name has the size, and is given when the file is whole.
_MAKE: Final = """
new=$1; named=$2; list=$3; shift 3
if nice -n 19 "$@"; then mv "$new" "$named-$(($(wc -c <"$new"))).jsa"; fi
rm -f "$new" "$list"
"""


class ClassData:
    """The file for one Java and these jars, in their order, which begin the class path.

    Options of the user that say where a JVM has its classes from turn it off. So does a folder that cannot be written.
    """

    def __init__(self, java: Java, jars: Sequence[Path]) -> None:
        self._java, self._jars = java, jars
        self._list: Path | None = None

    def options(self, given: Sequence[str], *, lists_to: Path | None = None) -> list[str]:
        """Return the options that map the file.

        Args:
          given: the user's options of this JVM.
          lists_to: if this JVM can make the file and should, it lists its classes there.
        """
        texts = [*given, *(os.environ.get(name, "") for name in USERS_OWN)]
        is_given = any(word in text for word in _OF_THE_KIND for text in texts)
        if os.environ.get(VARIABLE) == "0" or self._java.major < _MINIMUM_JAVA or is_given:
            return []
        with contextlib.suppress(OSError):
            named = self._named()
            for file in named.parent.glob(f"{named.name}-*.jsa"):
                if str(file.stat().st_size) == file.stem.rpartition("-")[2]:
                    os.utime(file)
                    return [*_QUIET, f"-XX:SharedArchiveFile={file}"]
            if lists_to is not None and _may_make(named):
                self._list = lists_to
                return [f"-XX:DumpLoadedClassList={lists_to}"]
        return []

    def make(self) -> None:
        """Make the file in the background, from what the JVM has listed until now. This may end after the process."""
        if self._list is None:
            return
        with contextlib.suppress(OSError):
            # The JVM goes on listing, so the last line may be a part of one. Classes with a source are not in the jars.
            lines = self._list.read_text().split("\n")[:-1]
            named = self._named()
            chosen = named.with_name(f"{named.name}.{os.getpid()}.list")
            chosen.write_text("".join(f"{line}\n" for line in lines if " source: " not in line))
            new = chosen.with_suffix(".new")
            java = [str(self._java.executable), "-Xshare:dump", "-Xmx256m", "-XX:+UseSerialGC"]
            java += [f"-XX:SharedClassListFile={chosen}", f"-XX:SharedArchiveFile={new}", "-cp", _path(self._jars)]
            command = ["/bin/sh", "-c", _MAKE, "sh", str(new), str(named), str(chosen), *java]
            quiet = subprocess.DEVNULL
            shell = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True)
            shell.returncode = 0  # nobody waits for it; without this, Python warns that it is still running
        self._list = None

    def _named(self) -> Path:
        """Return the path of the file without its size. Raises `OSError` if there is no such Java."""
        parts = (*identity_of(self._java.executable), _path(self._jars))
        key = hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
        return cache_dir() / "local" / f"classes-{key}"


def _path(jars: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, jars))


def _may_make(named: Path) -> bool:
    """Return whether this is the second broker, and no other one makes the file."""
    first, second = named.with_suffix(".first"), named.with_suffix(".second")
    if not first.exists():
        named.parent.mkdir(parents=True, exist_ok=True)
        first.touch()
        return False
    try:
        second.touch(exist_ok=False)
    except FileExistsError:
        if time.time() - second.stat().st_mtime < _AGAIN_S:
            return False
        second.touch()
    for old in named.parent.glob("classes-*"):  # of another Java or RocketMQ, not used for long
        if time.time() - old.stat().st_mtime > _KEPT_S:
            old.unlink(missing_ok=True)
    return True
