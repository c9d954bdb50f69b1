"""The runner's own channels of rows. The channels of PCollections count up from 0."""

from __future__ import annotations

from typing import Final

TICK: Final = -2
"""How far the sources (for level 1) or the channels (for later levels) have advanced. Goes to every bucket."""
PARTS: Final = -3
"""A read's findings about its parts (`Learned`). The key is the source's number."""
REPORT: Final = -4
"""A pickled `LevelReport` for the driver. Passes through all levels."""
BATCH: Final = -5
"""The micro-batch (`BatchHeader`): its run, its number, and what an earlier run cut. Goes to each task of level 0."""
FIRST_SOURCE: Final = -100
"""The channel of the first source's elements. Each further source has the next lower number."""
