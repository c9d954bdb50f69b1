"""Channels of rows that are the runner's own, beside those of PCollections, which count from 0."""

from __future__ import annotations

from typing import Final

TICK: Final = -2
"""How far sources (to level 1) or channels (to later levels) have come; to every bucket."""
PARTS: Final = -3
"""What a read has learned of its parts (`Learned`); key: the source's number."""
REPORT: Final = -4
"""For the driver: a pickled `LevelReport`; through all levels."""
BATCH: Final = -5
"""What micro-batch it is: the run that has planned it, its number, what an earlier run cut; to each task of level 0."""
FIRST_SOURCE: Final = -100
"""Channel of the first source's elements; that of the next is one less."""
