"""Beam's in-process runner. Not in `_beam`, which every program imports: this one takes long to import."""

from __future__ import annotations

from apache_beam.runners.portability.fn_api_runner import FnApiRunner

__all__ = ["FnApiRunner"]
