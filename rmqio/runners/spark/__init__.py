"""SparkRunner: runs Beam pipelines on Spark through PySpark.

Public names resolve on first use (PEP 562). Workers import modules of this package. That must not import Beam on the
way there, nor the runner at all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from rmqio.loading import lazy_names

if TYPE_CHECKING:
    from rmqio.runners.errors import PipelineFailed
    from rmqio.runners.spark.runner import SparkResult, SparkRunner

_HOMES = {
    "PipelineFailed": ".errors",
    "SparkResult": "runner",
    "SparkRunner": "runner",
}

__all__ = ["PipelineFailed", "SparkResult", "SparkRunner"]


def _check() -> None:
    importlib.import_module("rmqio.runners.spark.beam.versions").check()  # an untested Beam may lack a name


__getattr__ = lazy_names(__name__, _HOMES, check=_check, keep_in=globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
