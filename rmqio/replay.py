"""Reads dead letters and sends them back: `replay`, and `python -m rmqio.replay`. Does not need Beam."""

from __future__ import annotations

import sys

from rmqio.dead_letters.command import main
from rmqio.dead_letters.replay import ReplayResult, ReplayRow, replay

__all__ = ["ReplayResult", "ReplayRow", "replay"]

if __name__ == "__main__":
    sys.exit(main())
