"""Dead letters, read again and sent back: `replay`, and `python -m rmqio.replay`. Needs no Beam."""

from __future__ import annotations

from rmqio.replay.result import ReplayResult, ReplayRow
from rmqio.replay.run import replay

__all__ = ["ReplayResult", "ReplayRow", "replay"]
