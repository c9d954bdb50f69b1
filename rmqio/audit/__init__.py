"""Proves that nothing is lost between two topics, and says where it was: `rmqio audit`, and the transform `Audit`.

The name resolves on first use: the command works without Beam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqio.loading import lazy_names

if TYPE_CHECKING:
    from rmqio.audit.transform import Audit

__all__ = ["Audit"]

__getattr__ = lazy_names(__name__, {"Audit": "transform"})
