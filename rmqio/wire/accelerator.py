"""The compiled hot loops, where they were built and nobody turned them off."""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING, Final

PURE_PYTHON_VARIABLE: Final = "RMQIO_PURE_PYTHON"
"""Set to anything but nothing or 0, it turns the compiled loops off."""

if TYPE_CHECKING:
    from rmqio.wire import _fast


def load() -> ModuleType | None:
    """The extension, or None. Not being there, or being of another version of rmqio, is no error."""
    if os.environ.get(PURE_PYTHON_VARIABLE, "0") not in ("", "0"):
        return None
    try:
        from rmqio.wire import _fast
    except ImportError:
        return None
    return _fast
