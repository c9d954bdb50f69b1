"""File systems that need more than Beam itself."""

from __future__ import annotations

import importlib.util
from typing import Final

from rmqio.errors import LocalError

_NEEDS: Final = {
    "s3": ("boto3", "aws"),
    "gs": ("google.cloud.storage", "gcp"),
    "hdfs": ("hdfs", "hadoop"),
    "azfs": ("azure.storage.blob", "azure"),
}
"""By scheme: a package that is missing without the extra of Beam, and the extra."""


def require_file_system(path: str) -> None:
    """Raise `LocalError` if a package is missing here that the file system of a path needs; it says what to install."""
    scheme, is_url, _ = path.partition("://")
    package, extra = _NEEDS.get(scheme, ("", ""))
    if is_url and package and not _is_there(package):
        raise LocalError(f"{scheme}:// needs {package}: pip install 'apache-beam[{extra}]'")


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of a package around it
        return False
