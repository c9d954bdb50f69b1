"""The versions of Beam with which the runners were tested, and the check when a runner starts. Imports no Beam."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rmqio.errors import LocalError

LOGGER = logging.getLogger("rmqio.runners")

VARIABLE: Final = "RMQIO_UNTESTED_VERSIONS"
"""If 1, the runners try an untested version anyway."""


def release(version: str) -> tuple[int, int]:
    """Returns the major and minor number of a version, which may have a vendor's suffix; (0, 0) if it has none."""
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


# `make test-oldest` tests the first of these, `make test` the last; DirectRunner and FlinkRunner take them.
BEAM: Final = Releases("apache-beam", (2, 61), (2, 77))


def check(runner: str) -> None:
    """Checks the installed Beam for DirectRunner or FlinkRunner.

    Raises:
      LocalError: the runner was not tested with the installed Beam, and `RMQIO_UNTESTED_VERSIONS` is not 1.
    """
    import apache_beam

    require_tested(runner, [(BEAM, apache_beam.__version__)])


def require_tested(runner: str, installed: Sequence[tuple[Releases, str]], logger: logging.Logger = LOGGER) -> None:
    """Compares installed versions with the tested ones. Only logs a warning if `RMQIO_UNTESTED_VERSIONS` is 1.

    Raises:
      LocalError: a version was not tested.
    """
    found = [(tested, version) for tested, version in installed if version not in tested]
    if not found:
        return
    have = " and ".join(f"{tested.package} {version}" for tested, version in found)
    need = " ".join(f"'{tested.requirement}'" for tested, _ in found)
    problem = f"{runner} was not tested with the installed {have}"
    if os.environ.get(VARIABLE) == "1":
        logger.warning("%s, only with %s. Trying it anyway, because %s is 1", problem, need, VARIABLE)
        return
    raise LocalError(
        f"{problem}; it depends on private parts of Beam, which change. Install a tested version: pip install {need}. "
        f"To try the installed version anyway, set {VARIABLE}=1 in the environment"
    )
