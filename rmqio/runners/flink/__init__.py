"""Beam's own runner for Flink, with everything it needs: `--runner=FlinkRunner`, and its parts.

with JobServer() as server:
    options = rmqio.runners.options([*server.flags, "--streaming", "--checkpointing_interval=5000"])
    ...  # pipelines with these options share a job server
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from rmqio.loading import lazy_names
from rmqio.runners.errors import FlinkError, JobServerError
from rmqio.runners.flink.jobserver import JobServer
from rmqio.runners.flink.rest import FlinkJob, FlinkRest

if TYPE_CHECKING:
    from rmqio.runners.flink.result import FlinkResult
    from rmqio.runners.flink.runner import FlinkRunner

__all__ = ["FlinkError", "FlinkJob", "FlinkRest", "FlinkResult", "FlinkRunner", "JobServer", "JobServerError"]

# These import Beam, which takes seconds; the others need not wait for it.
_WITH_BEAM: Final = {"FlinkResult": "result", "FlinkRunner": "runner"}


def _check() -> None:
    importlib.import_module("rmqio.runners.beam.versions").check("FlinkRunner")  # an untested Beam may lack a name


__getattr__ = lazy_names(__name__, _WITH_BEAM, check=_check)
