"""A checked-in lock: lists Maven artefacts and their exact content.

A lock is JSON: {"name": ..., "roots": [...], "artefacts": [{"coordinates": ..., "sha256": ..., "size": ...}]}. The
coordinates are group:artifact:version[:packaging[:classifier]]; the default packaging is jar.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rmqio.local.errors import LocalBrokerError

ROCKETMQ_LOCK: Final = Path(__file__).with_name("rocketmq-5.5.0.lock.json")

_PART: Final = re.compile(r"[A-Za-z0-9_.+-]+")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A file in a Maven repository."""

    group: str
    artifact: str
    version: str
    packaging: str = "jar"
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Coordinates:
        """Parse group:artifact:version[:packaging[:classifier]]. Raises LocalBrokerError for anything else."""
        parts = text.split(":")
        # The parts become a path: none of them may leave the cache folder.
        if not 3 <= len(parts) <= 5 or any(not _PART.fullmatch(part) or ".." in part for part in parts):
            raise LocalBrokerError(f"not group:artifact:version[:packaging[:classifier]]: {text!r}")
        return cls(*parts)

    @property
    def filename(self) -> str:
        """The file name in Maven's format."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{classifier}.{self.packaging}"

    @property
    def path(self) -> str:
        """The path relative to a repository's address or folder, with slashes."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.filename}"

    def __str__(self) -> str:
        parts = [self.group, self.artifact, self.version]
        if self.classifier or self.packaging != "jar":
            parts.append(self.packaging)
        if self.classifier:
            parts.append(self.classifier)
        return ":".join(parts)


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file and its only accepted content."""

    coordinates: Coordinates
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Lock:
    """The files that one program needs, sorted by their coordinates."""

    name: str
    roots: tuple[str, ...]
    artefacts: tuple[Artefact, ...]

    @property
    def size(self) -> int:
        """Total bytes of all files."""
        return sum(artefact.size for artefact in self.artefacts)


def read_lock(path: Path) -> Lock:
    """Read a lock file. Raises LocalBrokerError naming the file and the faulty entry."""
    try:
        content = json.loads(path.read_bytes())
        return Lock(
            name=str(content["name"]),
            roots=tuple(str(root) for root in content["roots"]),
            artefacts=tuple(_artefact(entry) for entry in content["artefacts"]),
        )
    except OSError as error:
        raise LocalBrokerError(f"cannot read the lock file {path}: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, LocalBrokerError) as error:
        raise LocalBrokerError(f"the lock file {path} is invalid: {error!r}; resolve it again") from error


def dump_lock(lock: Lock) -> str:
    """Return a lock as the text of its file: one artefact per line, for readable diffs."""
    lines = [
        json.dumps({"coordinates": str(entry.coordinates), "sha256": entry.sha256, "size": entry.size})
        for entry in lock.artefacts
    ]
    head = f'{{\n"name": {json.dumps(lock.name)},\n"roots": {json.dumps(list(lock.roots))},\n"artefacts": [\n'
    return head + ",\n".join(lines) + "\n]\n}\n"


def is_verified(artefact: Artefact, path: Path) -> bool:
    """Return whether `path` holds exactly the content in the lock; False if it cannot be read."""
    with contextlib.suppress(OSError):
        if path.stat().st_size == artefact.size:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == artefact.sha256
    return False


def _artefact(entry: dict[str, Any]) -> Artefact:
    coordinates = Coordinates.parse(entry["coordinates"])
    sha256, size = entry["sha256"], entry["size"]
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError(f"{coordinates}: sha256 is not 64 lower case hexadecimal digits")
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"{coordinates}: size is not a number of bytes")
    return Artefact(coordinates, sha256, size)
