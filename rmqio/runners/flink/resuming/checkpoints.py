"""Finds the checkpoint from which a restarted pipeline resumes: Flink does not look for its last one by itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from rmqio.errors import LocalError
from rmqio.runners.checkpoints.folders import make_folder

_METADATA: Final = re.compile(r"^(?P<checkpoint>.+/(?:chk-\d+|savepoint-[^/]+))/_metadata$")


def url_of(checkpoint_dir: str) -> str:
    """Return the URL of a folder; one without a scheme is local. Raises `NotReady` if it cannot be created."""
    if "://" in checkpoint_dir:
        return checkpoint_dir
    folder = Path(checkpoint_dir.removeprefix("file:")).absolute()
    make_folder(folder)
    return folder.as_uri()


def newest(url: str) -> str | None:
    """Return the URL of the last complete checkpoint of any job under `url`, or of a later savepoint there, or None.

    Either is complete once it has its `_metadata`. `url` can be on any file system that Beam knows. Raises `LocalError`
    if it cannot be listed.
    """
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems

    local = url.startswith("file:")
    root = path_of(url) if local else url.rstrip("/")
    try:
        found = FileSystems.match([f"{root}/*/chk-*/_metadata", f"{root}/savepoint-*/_metadata"])
    except (BeamIOError, ValueError) as error:
        raise LocalError(
            f"--checkpoint_dir={url}: it cannot be searched for the last checkpoint ({error}); set "
            "--savepoint_path to resume, and --state_backend_storage_path for new checkpoints"
        ) from error
    complete = [
        (each.last_updated_in_seconds, match["checkpoint"])
        for result in found
        for each in result.metadata_list
        if (match := _METADATA.match(each.path))
    ]
    if not complete:
        return None
    path = max(complete)[1]
    return Path(path).as_uri() if local else path


def require(url: str) -> None:
    """Raises `LocalError` if the given checkpoint or savepoint does not exist on this machine."""
    given = Path(path_of(url) if url.startswith("file:") else url)
    if not (given / "_metadata").is_file() and not given.is_file():
        raise LocalError(f"--savepoint_path={url}: no savepoint or checkpoint, which is a folder with a file _metadata")


def is_older(one: str, other: str) -> bool:
    """Compare two checkpoints or savepoints; False if their file system does not say when they were complete."""
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems

    def at(url: str) -> float:
        path = path_of(url) if url.startswith("file:") else url
        return float(FileSystems.last_updated(f"{path.rstrip('/')}/_metadata"))

    try:
        return at(one) < at(other)
    except (BeamIOError, ValueError, OSError):
        return False


def path_of(url: str) -> str:
    """Return the folder of a local URL."""
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path)
