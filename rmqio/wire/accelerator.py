"""The hot loops in C, where they were built and nobody turned them off. See docs/accelerator.md."""

from __future__ import annotations

import os
from typing import Final

try:
    if os.environ.get("RMQIO_PURE_PYTHON", "0") not in ("", "0"):
        raise ImportError("RMQIO_PURE_PYTHON is set")
    from rmqio.wire import _fast as fast
except ImportError:  # not built, or built for another version of rmqio
    fast = None  # type: ignore[assignment]

IMPLEMENTATION: Final = "python" if fast is None else "c"
"""Of what this process decodes and encodes with."""
