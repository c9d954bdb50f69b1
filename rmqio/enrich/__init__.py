"""Dimension tables: `Enrich` adds columns of a table of millions of rows to the elements of a pipeline.

The names resolve on first use: a table can be described without Beam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqio.loading import lazy_names

if TYPE_CHECKING:
    from rmqio.enrich.arguments import add_arguments, check_arguments, from_arguments
    from rmqio.enrich.definition import Table
    from rmqio.enrich.transform import Enrich

__all__ = ["Enrich", "Table", "add_arguments", "check_arguments", "from_arguments"]

__getattr__ = lazy_names(
    __name__,
    dict.fromkeys(__all__, "arguments") | {"Enrich": "transform", "Table": "definition"},
    packages=("numpy", "pyarrow"),
    needs="dimension tables need the package {}: pip install 'rmqio[enrich]'",
)
