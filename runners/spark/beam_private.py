"""Everything of Beam that is no public interface and that the runner stands on, in one place.

Another version of Beam may move it: then this file, and the tests that name it, say what to look at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2, metrics_pb2
from apache_beam.runners import common, pipeline_context
from apache_beam.runners.pipeline_utils import group_by_key_input_visitor
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiMetrics
from apache_beam.runners.portability.fn_api_runner.worker_handlers import StateServicer
from apache_beam.runners.portability.stager import Stager
from apache_beam.runners.worker import bundle_processor, data_plane, operations, sdk_worker
from apache_beam.transforms import core, trigger

__all__ = [
    "NEVER_TRIGGER",
    "FnApiMetrics",
    "Stager",
    "StateServicer",
    "beam_fn_api_pb2",
    "beam_runner_api_pb2",
    "bundle_processor",
    "collected_finalizers",
    "common",
    "common_urns",
    "core",
    "data_plane",
    "group_by_key_input_visitor",
    "metrics_pb2",
    "operations",
    "pipeline_context",
    "python_urns",
    "sdk_worker",
    "translations",
]

NEVER_TRIGGER: Final = trigger._Never()


def collected_finalizers(processor: bundle_processor.BundleProcessor) -> list[Callable[[], None]]:
    """The finalizers that the processor's last bundle has registered, not run.

    Where they are kept is out of reach in Beam's compiled modules, so Beam is asked to run them, for a moment with a
    parameter class that collects instead.
    """
    found: list[Callable[[], None]] = []
    param: Any = core._BundleFinalizerParam
    run = param.finalize_bundle
    param.finalize_bundle = lambda self: found.extend(self._callbacks)
    try:
        processor.finalize_bundle()
    finally:
        param.finalize_bundle = run
    return found
