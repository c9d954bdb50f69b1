"""Values that are NULL because they could not be computed: they are counted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from apache_beam.metrics import Metrics

_LOGGER: Final = logging.getLogger(__name__)


class Nulls:
    """The metric `values_failed`."""

    def __init__(self) -> None:
        self._count = Metrics.counter("rmqio.sql", "values_failed")

    def made(self, errors: Sequence[Exception]) -> None:
        """Counts values. `errors`: why they are NULL."""
        if errors:
            self._count.inc(len(errors))
            _LOGGER.warning("%d values are NULL, the first one: %s", len(errors), errors[0])
