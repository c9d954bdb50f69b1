"""SparkRunner: runs Beam pipelines on Spark through PySpark.

Public names resolve on first use (PEP 562). Workers import modules of this package. That must not import Beam on the
way there, nor the runner at all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqio.runners.errors import PipelineFailed
    from rmqio.runners.spark.runner import SparkResult, SparkRunner

_HOMES = {
    "PipelineFailed": "rmqio.runners.errors",
    "SparkResult": "rmqio.runners.spark.runner",
    "SparkRunner": "rmqio.runners.spark.runner",
}

__all__ = ["PipelineFailed", "SparkResult", "SparkRunner"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rmqio.runners.spark' has no attribute {name!r}")
    try:
        module = importlib.import_module(home)
    except (ImportError, AttributeError):
        importlib.import_module("rmqio.runners.spark.beam.versions").check()  # an untested Beam may lack a name
        raise
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
