"""`type: RocketMQSql`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apache_beam as beam

from rmqio.sql.tables import SqlTransform
from rmqio.yaml.configs import error_output


class RocketMQSql(beam.PTransform):
    """The rows of a query, in the SQL of rmqio.

    Args:
      query: the query; CREATE VIEW and SET can stand before it. One input is `PCOLLECTION`; several have their names.
      settings: what SET would set.
      rowtime: the column that is the time of the rows, for windows; of several inputs, by name.
      error_handling: `{output: NAME}`: rows that cannot be computed go to this output.
    """

    def __init__(
        self,
        query: str,
        settings: Mapping[str, str] | None = None,
        rowtime: Any | None = None,
        error_handling: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._errors = error_output(error_handling)
        on_error = "fail" if self._errors is None else "output"
        self._transform = SqlTransform(query, settings=settings, rowtime=rowtime, on_error=on_error)

    def expand(self, pcolls: Any) -> Any:
        result = pcolls | "Query" >> self._transform
        return result if self._errors is None else {"rows": result.rows, self._errors: result.errors}
