"""Beam's private modules and names, and functions that read the private state of its objects. Does not change Beam."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apache_beam import pvalue
from apache_beam.coders.coder_impl import CoderImpl, create_InputStream, create_OutputStream
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.internal import pickler
from apache_beam.internal.util import insert_values_in_args
from apache_beam.metrics import monitoring_infos
from apache_beam.metrics.cells import BoundedTrieData
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2, metrics_pb2
from apache_beam.pvalue import SideInputData
from apache_beam.runners import common, pipeline_context
from apache_beam.runners.pipeline_utils import group_by_key_input_visitor
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiMetrics
from apache_beam.runners.portability.fn_api_runner.worker_handlers import StateServicer
from apache_beam.runners.portability.stager import Stager
from apache_beam.runners.worker import bundle_processor, data_plane, operations, sdk_worker
from apache_beam.transforms import environments
from apache_beam.utils import proto_utils

if TYPE_CHECKING:
    from apache_beam.coders.coder_impl import TimerCoderImpl
    from apache_beam.transforms.userstate import Timer

__all__ = [
    "BoundedTrieData",
    "CoderImpl",
    "FnApiMetrics",
    "GlobalWindowCoder",
    "SideInputData",
    "Stager",
    "StateServicer",
    "beam_fn_api_pb2",
    "beam_runner_api_pb2",
    "bundle_processor",
    "common",
    "common_urns",
    "create_InputStream",
    "create_OutputStream",
    "data_plane",
    "encoded_key",
    "environments",
    "group_by_key_input_visitor",
    "insert_values_in_args",
    "is_singleton_view",
    "metrics_pb2",
    "monitoring_infos",
    "operations",
    "pickler",
    "pipeline_context",
    "proto_utils",
    "python_urns",
    "sdk_worker",
    "taken",
    "translations",
]


def taken(stream: data_plane.ClosableOutputStream) -> bytes:
    """Returns what a bundle has written to a stream, and empties the stream."""
    data: bytes = stream.get()
    stream._clear()
    return data


def encoded_key(timer_coder: TimerCoderImpl, timer: Timer) -> bytes:
    """Returns the key of a timer as the coder of timers encodes it."""
    encoded: bytes = timer_coder._key_coder_impl.encode_nested(timer.user_key)
    return encoded


def is_singleton_view(view: object) -> bool:
    """Returns whether a view function is that of an AsSingleton, by its closure: Beam's protocol does not say."""
    cells = (cell.cell_contents for cell in getattr(view, "__closure__", None) or ())
    return any(each is pvalue.AsSingleton._from_runtime_iterable for each in cells)
