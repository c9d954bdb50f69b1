"""Where the runner logs."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("rmqio.runners.spark")
