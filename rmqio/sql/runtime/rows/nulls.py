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
            values = "1 value is" if len(errors) == 1 else f"{len(errors)} values are"
            _LOGGER.warning("%s NULL, the first one: %s", values, errors[0])
