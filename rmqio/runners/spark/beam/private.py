"""Beam's private names that other packages use, and functions that read the private state of Beam's objects.

It exports no modules, so that the names show what depends on Beam, but for those that Beam generates from the protocol
of its SDKs: messages and URNs. Their names are the protocol's, and some are those of public classes, too. Does not
change Beam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from apache_beam import pvalue
from apache_beam.coders.coder_impl import CoderImpl, create_InputStream, create_OutputStream
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.internal.pickler import dump_session, load_session
from apache_beam.internal.pickler import dumps as pickler_dumps
from apache_beam.internal.pickler import loads as pickler_loads
from apache_beam.internal.util import insert_values_in_args
from apache_beam.metrics.cells import BoundedTrieData
from apache_beam.metrics.monitoring_infos import consolidate, is_bounded_trie, is_string_set, to_key
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2, metrics_pb2
from apache_beam.portability.python_urns import EMBEDDED_PYTHON, PICKLED_TRANSFORM
from apache_beam.pvalue import SideInputData
from apache_beam.runners.common import ENCODED_IMPULSE_VALUE, DoFnSignature
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.runners.pipeline_utils import group_by_key_input_visitor
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiMetrics
from apache_beam.runners.portability.fn_api_runner.translations import (
    PAR_DO_URNS,
    Stage,
    TransformContext,
    annotate_downstream_side_inputs,
    annotate_stateful_dofns_as_roots,
    create_and_optimize_stages,
    expand_sdf,
    extract_impulse_stages,
    fix_flatten_coders,
    fix_side_input_pcoll_coders,
    greedily_fuse,
    lift_combiners,
    pack_combiners,
    read_to_impulse,
    remove_data_plane_ops,
    side_inputs,
    sort_stages,
    unique_name,
)
from apache_beam.runners.portability.fn_api_runner.worker_handlers import StateServicer
from apache_beam.runners.portability.stager import Stager
from apache_beam.runners.worker.bundle_processor import (
    DATA_INPUT_URN,
    IDENTITY_DOFN_URN,
    BeamTransformFactory,
    BundleProcessor,
)
from apache_beam.runners.worker.data_plane import ClosableOutputStream
from apache_beam.runners.worker.operations import DoOperation, Operation, PGBKCVOperation
from apache_beam.transforms.environments import EmbeddedPythonEnvironment, python_sdk_capabilities
from apache_beam.transforms.timeutil import TimestampCombinerImpl
from apache_beam.utils.proto_utils import parse_Bytes

if TYPE_CHECKING:
    from apache_beam.coders.coder_impl import TimerCoderImpl
    from apache_beam.transforms.userstate import Timer

__all__ = [
    "BeamTransformFactory",
    "BoundedTrieData",
    "BundleProcessor",
    "ClosableOutputStream",
    "CoderImpl",
    "DATA_INPUT_URN",
    "DoFnSignature",
    "DoOperation",
    "EMBEDDED_PYTHON",
    "ENCODED_IMPULSE_VALUE",
    "EmbeddedPythonEnvironment",
    "FnApiMetrics",
    "GlobalWindowCoder",
    "IDENTITY_DOFN_URN",
    "Operation",
    "PAR_DO_URNS",
    "PGBKCVOperation",
    "PICKLED_TRANSFORM",
    "PipelineContext",
    "SideInputData",
    "Stage",
    "Stager",
    "StateServicer",
    "TimestampCombinerImpl",
    "TransformContext",
    "annotate_downstream_side_inputs",
    "annotate_stateful_dofns_as_roots",
    "beam_fn_api_pb2",
    "beam_runner_api_pb2",
    "common_urns",
    "consolidate",
    "create_InputStream",
    "create_OutputStream",
    "create_and_optimize_stages",
    "dump_session",
    "encoded_key",
    "expand_sdf",
    "extract_impulse_stages",
    "fix_flatten_coders",
    "fix_side_input_pcoll_coders",
    "greedily_fuse",
    "group_by_key_input_visitor",
    "insert_values_in_args",
    "is_bounded_trie",
    "is_singleton_view",
    "is_string_set",
    "lift_combiners",
    "load_session",
    "metrics_pb2",
    "pack_combiners",
    "parse_Bytes",
    "pickler_dumps",
    "pickler_loads",
    "python_sdk_capabilities",
    "read_to_impulse",
    "remove_data_plane_ops",
    "side_inputs",
    "sort_stages",
    "taken",
    "to_key",
    "unique_name",
]


def taken(stream: ClosableOutputStream) -> bytes:
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
