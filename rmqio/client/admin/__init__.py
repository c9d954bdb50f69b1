"""Administration of a cluster: topics, consumer groups and single messages. No client of a pipeline needs it."""

from __future__ import annotations

from rmqio.client.admin.admin import Admin

__all__ = ["Admin"]
