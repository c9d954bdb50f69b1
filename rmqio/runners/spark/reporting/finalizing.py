"""Runs bundle finalizers. Workers send them with their reports, and the driver runs them after Spark's commit."""

from __future__ import annotations

from rmqio.runners.spark.beam.private import pickler_loads
from rmqio.runners.spark.log import LOGGER
from rmqio.runners.spark.model import TaskReport


def finalize(report: TaskReport) -> None:
    """Runs the callbacks of one task's bundles. Only logs errors, since in Beam a failed callback fails no pipeline."""
    for pickled in report.finalizers:
        try:
            pickler_loads(pickled)()
        except Exception as error:  # noqa: BLE001
            LOGGER.warning("a bundle finalizer failed: %s: %s", type(error).__name__, error)
