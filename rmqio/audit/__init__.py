"""Proves that nothing is lost between two topics, and says where it was: `rmqio audit`, and the transform `Audit`.

The name resolves on first use: the command works without Beam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqio.audit.transform import Audit

__all__ = ["Audit"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rmqio.audit.transform import Audit

    return Audit
