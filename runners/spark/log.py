"""The logger of the Spark runner."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("rmqio.runners.spark")
