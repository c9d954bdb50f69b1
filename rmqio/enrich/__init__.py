"""Dimension tables: `Enrich` adds columns of a table of millions of rows to the elements of a pipeline.

The names resolve on first use: a table can be described without Beam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqio.enrich.arguments import add_arguments, check_arguments, from_arguments
    from rmqio.enrich.definition import Table
    from rmqio.enrich.transform import Enrich

__all__ = ["Enrich", "Table", "add_arguments", "check_arguments", "from_arguments"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    from rmqio.errors import LocalError

    home = {"Enrich": "transform", "Table": "definition"}.get(name, "arguments")
    try:
        return getattr(importlib.import_module(f"rmqio.enrich.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name in ("pyarrow", "numpy"):
            raise LocalError(f"dimension tables need the package {error.name}: pip install 'rmqio[enrich]'") from error
        raise
