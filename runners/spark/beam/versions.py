"""The versions of Beam and PySpark that the runner was tested with, and the check when it starts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from rmqio.errors import LocalError
from rmqio.runners.spark.log import LOGGER

VARIABLE: Final = "RMQIO_UNTESTED_VERSIONS"
"""If 1, the runner tries an untested version anyway."""


def release(version: str) -> tuple[int, int]:
    """Major and minor release of a version, whatever a vendor has added to it; (0, 0) of what is none."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@dataclass(frozen=True)
class Releases:
    """Minor releases of a package, from the first to the last one."""

    package: str
    first: tuple[int, int]
    last: tuple[int, int]

    @property
    def requirement(self) -> str:
        """As pip takes it."""
        (major, minor), (last_major, last_minor) = self.first, self.last
        return f"{self.package}>={major}.{minor},<{last_major}.{last_minor + 1}"

    def __contains__(self, version: object) -> bool:
        """Whether that of a version is one of them."""
        return self.first <= release(str(version)) <= self.last


# `make test-versions` runs the first and the last ones; the extra `spark` in pyproject.toml requires them.
BEAM: Final = Releases("apache-beam", (2, 75), (2, 77))
PYSPARK: Final = Releases("pyspark", (4, 1), (4, 3))
_STREAMS: Final = (4, 2)


def check() -> None:
    """Logs a warning where `RMQIO_UNTESTED_VERSIONS` is 1.

    Raises:
      LocalError: the installed Beam or PySpark is not one of those that were tested.
    """
    found = [(tested, version) for tested, version in _installed() if version not in tested]
    if not found:
        return
    have = " and ".join(f"{tested.package} {version}" for tested, version in found)
    need = " ".join(f"'{tested.requirement}'" for tested, _ in found)
    told = f"SparkRunner was not tested with the installed {have}"
    if os.environ.get(VARIABLE) == "1":
        LOGGER.warning("%s, only with %s; trying it anyway, because %s is 1", told, need, VARIABLE)
        return
    raise LocalError(
        f"{told}; it depends on private parts of Beam, which change. Install a tested version: pip install {need}. "
        f"To try the installed version anyway, set {VARIABLE}=1 in the environment"
    )


def check_streams() -> None:
    """Raises LocalError for a PySpark that does not pass the start of a micro-batch to sources in Python."""
    version = dict(_installed())[PYSPARK]
    if release(version) < _STREAMS:
        need = ".".join(map(str, _STREAMS))
        raise LocalError(f"--streaming needs PySpark {need} or newer, and {version} is installed")


def _installed() -> list[tuple[Releases, str]]:
    import apache_beam
    import pyspark

    return [(BEAM, apache_beam.__version__), (PYSPARK, pyspark.__version__)]
