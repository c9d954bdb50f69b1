"""What is loaded only when it is asked for, or only if it is there: names of packages, extensions in C."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any


def lazy_names(
    package: str,
    homes: Mapping[str, str],
    *,
    packages: Collection[str] = (),
    needs: str = "",
    check: Callable[[], object] | None = None,
    keep_in: dict[str, Any] | None = None,
) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package, whose names resolve on first use (PEP 562).

    Args:
      homes: the module of each name, relative to the package.
      packages: those whose absence is a `LocalError`.
      needs: its text, with the name of the package as `{}`.
      check: raises if a module cannot be imported for a reason that it knows, such as an untested version.
      keep_in: the package's `globals()`, if a name is to be looked up here only once.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(importlib.import_module(f".{homes[name]}", package), name)
        except (ImportError, AttributeError) as error:
            if check is not None:
                check()
            if isinstance(error, ModuleNotFoundError) and error.name in packages:
                from rmqio.errors import LocalError

                raise LocalError(needs.format(error.name)) from error
            raise
        if keep_in is not None:
            keep_in[name] = value
        return value

    return load


def extension(name: str) -> ModuleType | None:
    """Returns an extension in C; None: it was not built, or is disabled (docs/install.md)."""
    if os.environ.get("RMQIO_PURE_PYTHON", "0") not in ("", "0"):
        return None
    try:
        return importlib.import_module(name)
    except ImportError:  # not built, or built for another version of rmqio
        return None
