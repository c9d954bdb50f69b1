"""Runners by name: `options(argv)` returns pipeline options for Direct, Spark and Flink; `Program` is a command line.

`Program` resolves on first use: workers import this package, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqio.loading import lazy_names
from rmqio.runners.errors import PipelineFailed
from rmqio.runners.options import options, runner_path, unknown_flags

if TYPE_CHECKING:
    from rmqio.runners.command_line import Program

__all__ = ["PipelineFailed", "Program", "options", "runner_path", "unknown_flags"]

__getattr__ = lazy_names(__name__, {"Program": "command_line"})
