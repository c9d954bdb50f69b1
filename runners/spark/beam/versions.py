"""The versions of Beam and PySpark with which the runner was tested, and the check when it starts."""

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
    """Returns the major and minor number of a version, which may have a vendor's suffix; (0, 0) if it is no version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@dataclass(frozen=True)
class Releases:
    """A range of minor releases of a package, from the first to the last one."""

    package: str
    first: tuple[int, int]
    last: tuple[int, int]

    @property
    def requirement(self) -> str:
        """The requirement in pip's format."""
        (major, minor), (last_major, last_minor) = self.first, self.last
        return f"{self.package}>={major}.{minor},<{last_major}.{last_minor + 1}"

    def __contains__(self, version: object) -> bool:
        """Returns whether the release of a version is in the range."""
        return self.first <= release(str(version)) <= self.last


# `make test-versions` tests the first and the last of these; the extra `spark` in pyproject.toml requires them.
BEAM: Final = Releases("apache-beam", (2, 75), (2, 77))
PYSPARK: Final = Releases("pyspark", (4, 1), (4, 3))
_STREAMS: Final = (4, 2)


def check() -> None:
    """Checks the installed Beam and PySpark. Only logs a warning if `RMQIO_UNTESTED_VERSIONS` is 1.

    Raises:
      LocalError: the runner was not tested with the installed Beam or PySpark.
    """
    found = [(tested, version) for tested, version in _installed() if version not in tested]
    if not found:
        return
    have = " and ".join(f"{tested.package} {version}" for tested, version in found)
    need = " ".join(f"'{tested.requirement}'" for tested, _ in found)
    problem = f"SparkRunner was not tested with the installed {have}"
    if os.environ.get(VARIABLE) == "1":
        LOGGER.warning("%s, only with %s. Trying it anyway, because %s is 1", problem, need, VARIABLE)
        return
    raise LocalError(
        f"{problem}; it depends on private parts of Beam, which change. Install a tested version: pip install {need}. "
        f"To try the installed version anyway, set {VARIABLE}=1 in the environment"
    )


def check_streams() -> None:
    """Raises LocalError if PySpark is too old to pass the start of a micro-batch to sources in Python."""
    version = dict(_installed())[PYSPARK]
    if release(version) < _STREAMS:
        need = ".".join(map(str, _STREAMS))
        raise LocalError(
            f"--streaming needs PySpark {need} or newer, and {version} is installed. "
            f"Upgrade it: pip install '{PYSPARK.package}>={need}'"
        )


def _installed() -> list[tuple[Releases, str]]:
    import apache_beam
    import pyspark

    return [(BEAM, apache_beam.__version__), (PYSPARK, pyspark.__version__)]
