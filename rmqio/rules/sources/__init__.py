"""Sources of rules: where the texts are. A source is a picklable value; it holds no files or connections."""

from __future__ import annotations

from rmqio.rules.sources.files import Files, write_manifest
from rmqio.rules.sources.topic import Topic

__all__ = ["Files", "Topic", "write_manifest"]
