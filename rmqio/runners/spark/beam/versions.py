"""The versions of Beam and PySpark with which the runner was tested, and the check when it starts."""

from __future__ import annotations

from typing import Final

from rmqio.errors import LocalError
from rmqio.runners.beam.versions import Releases, release, require_tested
from rmqio.runners.spark.errors import LOGGER

# `make test-versions` tests the first and the last of these; the extra `spark` in pyproject.toml requires them.
BEAM: Final = Releases("apache-beam", (2, 75), (2, 77))
PYSPARK: Final = Releases("pyspark", (4, 1), (4, 3))
_STREAMS: Final = (4, 2)


def check() -> None:
    """Checks the installed Beam and PySpark. Only logs a warning if `RMQIO_UNTESTED_VERSIONS` is 1.

    Raises:
      LocalError: the runner was not tested with the installed Beam or PySpark.
    """
    require_tested("SparkRunner", _installed(), LOGGER)


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
