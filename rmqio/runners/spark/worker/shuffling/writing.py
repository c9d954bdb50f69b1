"""Write operations at the end of a fused stage: turn elements into rows, in the form that their reader needs.

Beam's bundle processor makes them from transforms with `WRITE_URN`, as it makes its own sinks. An element is encoded
once, here. Its key and value are encoded separately if a shuffle follows. Nothing decodes them again before the stage
that reads them. The operations are in `element_writes`, `keyed_writes` and `windowed_writes`. This module chooses one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from apache_beam.coders import BytesCoder, WindowedValueCoder

from rmqio.runners.spark.model import WRITE_URN, Form, Grouping, GroupSpec, Output
from rmqio.runners.spark.worker.shuffling.element_writes import DealtWrite, PlainWrite
from rmqio.runners.spark.worker.shuffling.keyed_writes import GlobalWrite, WholeWrite
from rmqio.runners.spark.worker.shuffling.windowed_writes import WindowedWrite, WindowElementsWrite, WindowsWrite
from rmqio.runners.spark.worker.shuffling.write_operation import WriteOperation

if TYPE_CHECKING:
    from apache_beam.coders import Coder

    from rmqio.runners.spark.beam.private import BeamTransformFactory, Operation, beam_runner_api_pb2

__all__ = ["CREATORS", "WriteOperation", "payload"]


@dataclass(frozen=True, slots=True)
class _Spec:
    """The payload of a transform with `WRITE_URN`."""

    channel: int
    form: Form
    buckets: int
    coder_id: str
    group: GroupSpec | None

    def to_bytes(self) -> bytes:
        group = self.group and (self.group.grouping.value, self.group.kv_coder_id, self.group.windowing_id)
        return json.dumps([self.channel, self.form.value, self.buckets, self.coder_id, group]).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> _Spec:
        channel, form, buckets, coder_id, group = json.loads(payload)
        spec = group and GroupSpec(Grouping(group[0]), group[1], group[2])
        return cls(channel, Form(form), buckets, coder_id, spec)


def payload(output: Output, coder_id: str, group: GroupSpec | None) -> bytes:
    """Returns the payload of a transform with `WRITE_URN`."""
    return _Spec(output.channel, output.form, output.buckets, coder_id, group).to_bytes()


def _create(
    factory: BeamTransformFactory,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    parameter: bytes,
    consumers: dict[str, list[Operation]],
) -> WriteOperation:
    spec = _Spec.from_bytes(parameter)
    args = (transform.unique_name, transform_id, factory, factory.data_channel_factory.rows, spec.channel)
    form, buckets = spec.form, spec.buckets
    coder_of: Callable[[str], Coder] = factory.context.coders.get_by_id
    coder = coder_of(spec.coder_id)
    if form is Form.PLAIN:
        return PlainWrite(*args, coder=coder)
    if form is Form.DEALT:
        return DealtWrite(*args, coder=coder, buckets=buckets)
    if form is Form.KEYED:
        return WholeWrite(*args, kv_coder=coder.wrapped_value_coder, coder=coder, only_value=False, buckets=buckets)
    assert spec.group is not None  # as for all other forms
    grouping = spec.group.grouping
    kv_coder = coder_of(spec.group.kv_coder_id)
    if form is Form.GROUPED and grouping is Grouping.GLOBAL:
        return GlobalWrite(*args, kv_coder=kv_coder, buckets=buckets)
    windowing = factory.context.windowing_strategies.get_by_id(spec.group.windowing_id)
    if form is Form.STATEFUL or (form is Form.WINDOWS and grouping is Grouping.TRIGGERED):
        opaque = form is Form.WINDOWS
        if opaque:
            coder = WindowedValueCoder(BytesCoder(), windowing.windowfn.get_window_coder())
        encode = coder.get_impl().encode_to_stream
        return WindowElementsWrite(
            *args, kv_coder=kv_coder, windowing=windowing, buckets=buckets, encode=encode, opaque=opaque
        )
    if form is Form.WINDOWS:
        return WindowsWrite(*args, kv_coder=kv_coder, windowing=windowing, buckets=buckets)
    if grouping is Grouping.WINDOWED:
        return WindowedWrite(*args, kv_coder=kv_coder, windowing=windowing, buckets=buckets)
    values = WindowedValueCoder(kv_coder.value_coder(), windowing.windowfn.get_window_coder())
    return WholeWrite(*args, kv_coder=kv_coder, coder=values, only_value=True, buckets=buckets)


CREATORS: Final[Mapping[str, Callable[..., WriteOperation]]] = MappingProxyType({WRITE_URN: _create})
"""The functions that make operations, by the URN of the transform; see `beam.patches`."""
