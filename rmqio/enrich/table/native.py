"""The C extension that looks up keys, if it was built and is not disabled (docs/accelerator.md)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final


def _load() -> ModuleType | None:
    if os.environ.get("RMQIO_PURE_PYTHON", "0") not in ("", "0"):
        return None
    try:
        return importlib.import_module("rmqio.enrich.table._look")
    except ImportError:  # not built
        return None


_module: Final = _load()
hash_column: Final[Callable[..., None] | None] = getattr(_module, "hash_column", None)
"""Takes hashes, layout, size, length, the addresses of values and data, and the offset; mixes the column into them."""
hash_last: Final[Callable[[Any], None] | None] = getattr(_module, "hash_last", None)
"""Makes hashes final."""
sizes_of_codes: Final[Any] = getattr(_module, "sizes_of_codes", None)
"""Takes codes with their validity and the offsets of a dictionary; writes the offsets of their texts."""
texts_of_codes: Final[Any] = getattr(_module, "texts_of_codes", None)
"""Takes codes, the dictionary, and offsets; writes the texts."""
new_table: Final[Callable[..., Any] | None] = getattr(_module, "Table", None)
"""Takes owner, seed, bits of buckets and parts, addresses of starts and fingerprints, first rows, and columns."""
