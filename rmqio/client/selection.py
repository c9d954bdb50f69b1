"""The former home of `rmqio.topics`; it will be removed in the release after the next."""

from __future__ import annotations

import warnings

from rmqio.topics import (
    WritableQueues,
    interleaved,
    java_string_hash,
    queue_for_key,
    queue_index_for_key,
)

__all__ = ["WritableQueues", "interleaved", "java_string_hash", "queue_for_key", "queue_index_for_key"]

warnings.warn("rmqio.client.selection is rmqio.topics now", DeprecationWarning, stacklevel=2)
