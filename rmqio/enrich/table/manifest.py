"""The manifest of a table's folder: what is in it, and how to see that it is whole."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rmqio.enrich.table import hashing
from rmqio.errors import LocalError

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
ROWS: Final = "rows.arrow"
STARTS: Final = "starts.bin"
PRINTS: Final = "prints.bin"
FILES: Final = (ROWS, STARTS, PRINTS)
_VERIFIED: Final = "verified.json"
_CHUNK: Final = 1 << 22


class BadTable(LocalError):
    """A folder that is not a table of this format, or no whole one. It is built again, never read."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a folder.

    Attributes:
      keys, columns: the names of the key's columns, and of those that a look-up returns, in order.
      seed: of the hash.
      rows, null_keys: the rows in it, and those that were left out because a part of their key is null.
      dropped: rows that had the key of another, and were left out as `duplicates` says.
      part_rows: the rows of each part.
      has_times: whether rows have a time from which and to which they are valid.
      files: of each file, its size and its checksum.
      version: the content's address: the same for the same content.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    seed: int
    rows: int
    null_keys: int
    dropped: int
    bucket_bits: int
    part_bits: int
    part_rows: tuple[int, ...]
    has_times: bool
    files: dict[str, tuple[int, str]]
    version: str = ""

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(size for size, _ in self.files.values())


def form() -> tuple[int, str]:
    """Returns the format and the hash of the tables that this version of rmqio reads and writes."""
    return FORMAT, hashing.NAME


def write(folder: Path, manifest: Manifest) -> Manifest:
    """Writes the manifest of a folder whose files are there. Returns it with its version."""
    fields = {**dataclasses.asdict(manifest), "format": FORMAT, "hash": hashing.NAME}
    fields["version"] = _digest_of(fields)
    text = json.dumps(fields, indent=1)
    with open(folder / MANIFEST, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return dataclasses.replace(manifest, version=fields["version"])


def read(folder: Path) -> Manifest:
    """Returns the manifest. Raises `BadTable` if it is none, or files have another size than it says."""
    try:
        fields = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(fields, dict):
            raise BadTable(f"{folder}: its manifest is not an object")
        found_form, known_form = (fields.get("format"), fields.get("hash")), form()
        if found_form != known_form:
            raise BadTable(
                f"{folder} is a table of another version of rmqio: its format and hash are {found_form}, and "
                f"this version reads {known_form}. Delete the folder, and load the table again"
            )
        if fields["version"] != _digest_of(fields):
            raise BadTable(f"{folder}: its manifest was changed")
        fields = {each.name: fields[each.name] for each in dataclasses.fields(Manifest)}
        for name in ("keys", "columns", "part_rows"):
            fields[name] = tuple(fields[name])
        fields["files"] = {name: (size, digest) for name, (size, digest) in fields["files"].items()}
        found = Manifest(**fields)
        for name in FILES:
            if (folder / name).stat().st_size != found.files[name][0]:
                raise BadTable(f"{folder}: {name} is not whole")
    except BadTable:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadTable(f"{folder} is not a table: {error}") from error
    return found


def verify(folder: Path, manifest: Manifest) -> None:
    """Compares the checksums, once in the life of the machine's boot. Raises `BadTable`.

    A table that was written before a crash can have lost pages although its size is right.
    """
    stamp = _stamp(folder)
    try:
        if json.loads((folder / _VERIFIED).read_text()) == stamp:
            return
    except (OSError, ValueError):
        pass
    for name, (_, digest) in manifest.files.items():
        if digest_of(folder / name) != digest:
            raise BadTable(f"{folder}: the checksum of {name} is wrong")
    note_verified(folder)


def note_verified(folder: Path) -> None:
    """Notes that the files are as the manifest says."""
    temporary = folder / f"{_VERIFIED}.{os.getpid()}"
    try:
        temporary.write_text(json.dumps(_stamp(folder)))
        os.replace(temporary, folder / _VERIFIED)
    except OSError:  # a read-only folder is verified each time
        return


def _stamp(folder: Path) -> dict[str, Any]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    found: dict[str, Any] = {"boot": boot}
    for name in FILES:
        state = (folder / name).stat()
        found[name] = [state.st_size, state.st_mtime_ns, state.st_ino]
    return found


def digest_of(path: Path) -> str:
    """Returns the checksum of a file."""
    found = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while data := file.read(_CHUNK):
            found.update(data)
    return found.hexdigest()


def _digest_of(fields: dict[str, Any]) -> str:
    kept = {name: value for name, value in fields.items() if name != "version"}
    return hashlib.blake2b(json.dumps(kept, sort_keys=True).encode(), digest_size=16).hexdigest()
