"""Files of rules, read all or nothing.

A manifest names the files and their hashes: what does not agree with it is not read. Without a manifest, files that
change while they are read are read again, and the folder is resolved once, so that a link to it can be replaced.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rmqio.errors import LocalError
from rmqio.rules.errors import Problem, RuleError
from rmqio.rules.formats.base import RuleText

MANIFEST: Final = "manifest.json"
_TRIES: Final = 5
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Files:
    """Files by patterns (`rules/*.yml`, `rules/**/*.yml`), folders, or a manifest (`rules/manifest.json`)."""

    patterns: tuple[str, ...]
    may_be_empty: bool = False
    """Whether a pattern may have no files any more, as long as its folder is there."""

    def texts(self) -> tuple[RuleText, ...]:
        """See `Source`."""
        for number in range(_TRIES):
            if number:
                time.sleep(_PAUSE_S)
            before = self.signature()
            try:
                found = tuple(RuleText(name, _read(path, name, digest)) for name, path, digest in self._found())
            except FileNotFoundError:  # renamed or removed since it was listed
                continue
            if self.signature() == before:
                return found
        raise RuleError((Problem(self.patterns[0], 0, "", "the files change while they are read: try again later"),))

    def signature(self) -> str:
        """See `Source`. It is made of names, sizes, times and inodes, and of the text of manifests."""
        parts: list[Any] = []
        for pattern in self.patterns:
            if _is_manifest(pattern):
                manifest = Path(pattern)
                try:
                    parts.append(manifest.read_bytes() if manifest.is_file() else b"")
                except OSError as error:
                    raise RuleError((Problem(pattern, 0, "", f"cannot read it: {error.strerror}"),)) from error
        for name, path, digest in self._found(is_checked=False):
            try:
                status = os.stat(path)
            except FileNotFoundError:
                parts.append((name, None))
            except OSError as error:
                raise RuleError((Problem(name, 0, "", f"cannot read it: {error.strerror}"),)) from error
            else:
                parts.append((name, digest, status.st_size, status.st_mtime_ns, status.st_ino))
        return hashlib.blake2b(repr(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

    def _found(self, *, is_checked: bool = True) -> Iterator[tuple[str, str, str | None]]:
        """Yields (name, path, hash) of each file once, in order of names. Raises `RuleError` if there is none."""
        found: dict[str, tuple[str, str, str | None]] = {}
        for pattern in self.patterns:
            some = list(_of_manifest(pattern, is_checked) if _is_manifest(pattern) else _matching(pattern))
            if not some and is_checked:
                if not self.may_be_empty:
                    raise RuleError((Problem(pattern, 0, "", "there is no such file of rules"),))
                if not os.path.isdir(folder := _folder_of(pattern)):
                    raise RuleError((Problem(pattern, 0, "", f"the folder {folder} is gone"),))
            found |= {os.path.abspath(path): (name, path, digest) for name, path, digest in some}
        yield from sorted(found.values())


def write_manifest(path: str | Path, files: Sequence[str | Path]) -> None:
    """Writes a manifest of files, which are in its folder or below, at once: readers see the old one or the new one.

    Put the files in place first. Raises `LocalError` for a file that is elsewhere.
    """
    target = Path(path)
    if not _is_manifest(str(target)):
        raise LocalError(f"{target}: a manifest must be named {MANIFEST}, or ends with .{MANIFEST}")
    found = {}
    for each in sorted(map(Path, files)):
        try:
            name = each.resolve().relative_to(target.parent.resolve()).as_posix()
        except ValueError:
            raise LocalError(f"{each} is not in the folder of the manifest, {target.parent}") from None
        found[name] = hashlib.sha256(each.read_bytes()).hexdigest()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=target.parent, delete=False) as file:
        json.dump({"files": found}, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.chmod(file.name, 0o644)
    os.replace(file.name, target)


def _is_manifest(pattern: str) -> bool:
    name = os.path.basename(pattern)
    return name == MANIFEST or name.endswith(f".{MANIFEST}")


def _matching(pattern: str) -> Iterator[tuple[str, str, str | None]]:
    if os.path.isdir(pattern):
        raise RuleError((Problem(pattern, 0, "", "this is a folder: write which files of it, as in rules/*.yml"),))
    is_pattern = glob.has_magic(pattern)
    folder = _head(pattern)
    base = _folder_of(pattern)
    rest = os.path.relpath(pattern, folder) if folder else pattern
    if is_pattern:
        _require_readable(pattern, base)
    names = glob.glob(rest, root_dir=base, recursive=True) if is_pattern else [rest]
    for name in names:
        path = os.path.join(base, name)
        shown = os.path.join(folder, name)
        if not _is_manifest(name) and _is_there(path, shown):
            yield shown, path, None


def _require_readable(pattern: str, folder: str) -> None:
    """Raises `RuleError` for a folder that cannot be listed: `glob` finds no files there, as if they were deleted."""
    try:
        with os.scandir(folder):
            return
    except (FileNotFoundError, NotADirectoryError):  # no files
        return
    except OSError as error:
        raise RuleError((Problem(pattern, 0, "", f"cannot list {folder}: {error.strerror}"),)) from error


def _is_there(path: str, name: str) -> bool:
    """Returns whether there is a file. Raises `RuleError` for what is not one, but was meant to be: not for folders."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            reason = f"this is a link to a file that is not there: {os.readlink(path)}"
            raise RuleError((Problem(name, 0, "", reason),)) from None
        return False
    except OSError as error:
        raise RuleError((Problem(name, 0, "", f"cannot read it: {error.strerror}"),)) from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise RuleError((Problem(name, 0, "", "this is not a regular file"),))
    return stat.S_ISREG(mode)


def _head(pattern: str) -> str:
    """The part of a pattern before its first folder or name that is a pattern; of a path, its folder."""
    head = pattern if glob.has_magic(pattern) else os.path.dirname(pattern)
    while glob.has_magic(head):
        head = os.path.dirname(head)
    return head


def _folder_of(pattern: str) -> str:
    return os.path.realpath(_head(pattern) or os.curdir)


def _of_manifest(pattern: str, is_checked: bool) -> Iterator[tuple[str, str, str | None]]:
    folder = os.path.dirname(pattern)
    base = os.path.realpath(folder) if folder else os.path.realpath(os.curdir)
    try:
        files = json.loads(Path(base, os.path.basename(pattern)).read_text("utf-8-sig"))["files"]
        found = [(str(name), str(digest)) for name, digest in files.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if not is_checked:
            return
        reason = f"this is not a manifest ({error}): write it with rmqio rules check FILES --manifest {pattern}"
        raise RuleError((Problem(pattern, 0, "", reason),)) from error
    for name, digest in found:
        path = os.path.realpath(os.path.join(base, name))
        if not path.startswith(base + os.sep):
            raise RuleError((Problem(pattern, 0, "", f"{name!r} is not in the folder of the manifest"),))
        yield os.path.join(folder, name), path, digest


def _read(path: str, name: str, digest: str | None) -> str:
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        if digest is None:
            raise
        raise RuleError((Problem(name, 0, "", "the manifest names this file, and it is not there"),)) from None
    except OSError as error:
        raise RuleError((Problem(name, 0, "", f"cannot read it: {error.strerror}"),)) from error
    if digest is not None and hashlib.sha256(raw).hexdigest() != digest:
        raise RuleError((Problem(name, 0, "", "this is not the file of the manifest: their hashes differ"),))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RuleError((Problem(name, line, "", f"this is not UTF-8: byte {error.start} is not"),)) from error
