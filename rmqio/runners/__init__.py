"""Runners by name: `rmqio.runners.options(argv)` returns pipeline options for Direct, Spark and Flink."""

from __future__ import annotations

from rmqio.runners.errors import PipelineFailed
from rmqio.runners.options import options, runner_path, unknown_flags

__all__ = ["PipelineFailed", "options", "runner_path", "unknown_flags"]
