"""Makes a task fail with one clear error in a worker whose Beam or rmqio is not the driver's.

Pickled DoFns, coders and tasks of one version are not those of another. The first failure depends on the versions:
a name is missing, or a task reads something else than what it was sent. The check therefore comes before everything
else. It is pickled by value and uses the standard library alone, so it also runs where rmqio lacks this module.

PySpark itself compares the minor versions of Python. Imports Beam in the driver, and in tasks only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from pyspark import cloudpickle

from rmqio.runners.beam.versions import VARIABLE

MISMATCH: Final = "[RMQIO_VERSION_MISMATCH]"
"""Marks the error in Spark's message about the failed job, for the driver (`session.unfit_workers`)."""


def checked(function: Callable[..., Any], *given: object) -> Callable[[Any], Any]:
    """Returns a function of one argument that calls `function(*given, argument)` after the check.

    `given` is for what Spark has to find when it pickles the function, such as broadcasts.
    """
    check, pickled = versions_check(), cloudpickle.dumps(function)

    def call(argument: Any) -> Any:
        import pickle

        check()
        return pickle.loads(pickled)(*given, argument)

    call.__name__ = function.__name__  # Spark's UI shows it
    return call


def versions_check() -> Callable[[], None]:
    """Returns the check that a process has the versions of this one. If `RMQIO_UNTESTED_VERSIONS` is 1, it accepts all.

    It takes microseconds once the packages are imported, which each task needs anyway.
    """
    driver = {} if os.environ.get(VARIABLE) == "1" else versions()
    mark = MISMATCH

    def check() -> None:  # pickled by value, since it is not at the top level of a module
        import importlib
        import platform
        import sys

        found: dict[str, str] = {}
        for name, version in driver.items():
            package = name.replace("_", "-")
            try:
                here = getattr(importlib.import_module(name), "__version__", "unknown")
            except ImportError as error:
                found[name] = f"no {package} ({error})"
            else:
                if here != version:
                    found[name] = f"{package} {here}"
        if found:
            have, need = " and ".join(found.values()), " and ".join(map(driver.__getitem__, found))
            raise RuntimeError(f"{mark} {sys.executable} on {platform.node()} has {have}, and the driver has {need}")

    return check


def versions() -> dict[str, str]:
    """Returns the versions that have to be the same everywhere, by the names of the modules."""
    import apache_beam

    import rmqio

    return {"apache_beam": apache_beam.__version__, "rmqio": rmqio.__version__}
