"""Maven artefacts: a checked-in lock says which, and the user's mirror or Beam's repository has them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from rmqio.local.beam import default_maven_repository
from rmqio.local.errors import LocalBrokerError

# Chooses the source of artefacts: the user's Maven mirror if there is one, else the repository that Beam uses.

REPOSITORY_VARIABLE: Final = "RMQIO_MAVEN_REPOSITORY"
SETTINGS_VARIABLE: Final = "RMQIO_MAVEN_SETTINGS"

_CENTRAL: Final = "central"
"""The id of Maven's default repository, which a mirror's <mirrorOf> is matched against."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A Maven repository and its credentials. `origin` says in messages where it was configured."""

    url: str
    origin: str
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"{self.url} ({self.origin})"


def find_repository(environ: Mapping[str, str] | None = None) -> Repository:
    """Return the repository to fetch from: RMQIO_MAVEN_REPOSITORY, the mirror in Maven's settings, or Beam's default.

    Raises LocalBrokerError if the settings cannot be read or their mirror cannot be used.
    """
    environ = os.environ if environ is None else environ
    if url := environ.get(REPOSITORY_VARIABLE):
        return _with_credentials_apart(url, f"from {REPOSITORY_VARIABLE}")
    settings = [(path, _parse(path, environ)) for path in _settings_files(environ)]
    mirrors = [(path, mirror) for path, root in settings for mirror in root.findall("mirrors/mirror")]
    # As in Maven: a mirror of exactly "central" wins over patterns, then the first in order, the user's file first.
    for matches in (lambda pattern: pattern == _CENTRAL, mirrors_central):
        for path, mirror in mirrors:
            if matches(_text(mirror, "mirrorOf")):
                return _mirror(path, mirror, [root for _, root in settings])
    return Repository(default_maven_repository(), "the default; no mirror is configured")


def local_repository(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of Maven's own downloads on this machine, which may not exist."""
    environ = os.environ if environ is None else environ
    for path in _settings_files(environ):
        if folder := _text(_parse(path, environ), "localRepository"):
            return Path(folder)
    return _home(environ) / ".m2" / "repository"


def mirrors_central(pattern: str) -> bool:
    """Return whether a <mirrorOf> pattern covers Maven's default repository, which is external and uses https."""
    covered = False
    for part in (part.strip() for part in pattern.split(",")):
        if part == f"!{_CENTRAL}":
            return False
        if part == _CENTRAL:
            return True
        # "external:http:*" means repositories with plain http, so it never covers this one.
        covered = covered or part in ("*", "external:*")
    return covered


def _mirror(path: Path, mirror: ElementTree.Element, settings: list[ElementTree.Element]) -> Repository:
    name, url = _text(mirror, "id"), _text(mirror, "url")
    origin = f"mirror {name!r} of {path}"
    if _text(mirror, "blocked") == "true" or not url:
        raise LocalBrokerError(f"{origin} blocks Maven's default repository; set {REPOSITORY_VARIABLE} to another one")
    repository = _with_credentials_apart(url, origin)
    for server in (server for root in settings for server in root.findall("servers/server")):
        if _text(server, "id") != name:
            continue
        user, password = _text(server, "username"), _text(server, "password")
        if re.fullmatch(r"\{.*\}", password):
            raise LocalBrokerError(
                f"the password of server {name!r} in Maven's settings is encrypted with Maven's master password, which "
                f"rmqio cannot read: set {REPOSITORY_VARIABLE} to the mirror's address with user:password@ in it"
            )
        headers = tuple(
            (_text(header, "name"), _text(header, "value"))
            for header in server.findall("configuration/httpHeaders/property")
        )
        return Repository(repository.url, origin, (user, password) if user else repository.credentials, headers)
    return repository


def _with_credentials_apart(url: str, origin: str) -> Repository:
    """Move credentials out of the URL, so that a password in an address is never printed."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    if parts.scheme not in ("http", "https", "file"):
        shown = urlunsplit(parts._replace(netloc=host)) if parts.netloc else url.rpartition("@")[2]
        raise LocalBrokerError(f"{shown!r} ({origin}) is not the address of a Maven repository: http, https or file")
    credentials = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return Repository(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), origin, credentials)


def _settings_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the settings files that Maven would read, the dominant one first."""
    if given := environ.get(SETTINGS_VARIABLE):
        path = Path(given)
        if not path.is_file():
            raise LocalBrokerError(f"{SETTINGS_VARIABLE} is set to {path}, which is not a file")
        yield path
    elif (user := _home(environ) / ".m2" / "settings.xml").is_file():
        yield user
    home = environ.get("MAVEN_HOME") or environ.get("M2_HOME")
    if not home and (command := shutil.which("mvn", path=environ.get("PATH", ""))):
        home = str(Path(command).resolve().parent.parent)
    if home and (shared := Path(home, "conf", "settings.xml")).is_file():
        yield shared


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())


def _parse(path: Path, environ: Mapping[str, str]) -> ElementTree.Element:
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise LocalBrokerError(f"cannot read Maven's settings {path}: {error}") from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # with or without the namespace of settings-1.0.0.xsd
        element.text = _interpolate(element.text or "", environ).strip()
    return root


def _interpolate(text: str, environ: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name == "user.home":
            return str(_home(environ))
        return environ.get(name.removeprefix("env."), match[0]) if name.startswith("env.") else match[0]

    return re.sub(r"\$\{([^}]+)\}", value, text)


def _text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(name) or ""


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
