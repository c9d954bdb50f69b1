"""The only file of `rmqio.skew` that uses Beam's private parts: replacing transforms, and a shuffle by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.pipeline import PTransformOverride
from apache_beam.transforms.util import ReshufflePerKey

__all__ = ["ReshufflePerKey", "replace_transforms"]


def replace_transforms(
    pipeline: beam.Pipeline, matches: Callable[[Any], bool], replacement: Callable[[Any], beam.PTransform[Any, Any]]
) -> None:
    """Replaces the applied transforms of a pipeline that match."""
    pipeline.replace_all([_Override(matches, replacement)])


class _Override(PTransformOverride):
    def __init__(self, matches: Callable[[Any], bool], replacement: Callable[[Any], beam.PTransform[Any, Any]]) -> None:
        self._matches, self._replacement = matches, replacement

    def matches(self, applied_ptransform: Any) -> bool:
        return self._matches(applied_ptransform)

    def get_replacement_transform_for_applied_ptransform(self, applied_ptransform: Any) -> Any:
        return self._replacement(applied_ptransform)
