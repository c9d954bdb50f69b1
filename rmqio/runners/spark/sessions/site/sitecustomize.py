"""Makes PySpark's processes import the installed PySpark instead of its zip file, and keeps one process quiet.

Python imports this module when it starts: `session.py` puts its folder on the path of the processes that Spark starts.
Spark puts a zip file with a copy of PySpark first on the path. Each process compiles the modules in the zip file again,
which takes over a second, and a streaming query starts five such processes, one after the other. Each task also reads
the table of contents of the file again.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_HERE = str(Path(__file__).parent)
_END = ("pyspark", "python", "lib", "pyspark.zip")


# Spark asks this process for the state of an operator before any code of the pipeline runs. It prints that it starts.
_CHATTY = "pyspark.sql.streaming.transform_with_state_driver_worker"


def without_zips(path: list[str]) -> list[str]:
    """Returns a path without the zip files of a PySpark that is also on the path as a package, installed by pip."""
    zips = [each for each in map(Path, path) if each.parts[-4:] == _END and str(each.parents[3]) in path]
    unwanted = {str(each) for each in zips}
    for each in zips:
        if (each.parents[3] / "py4j").is_dir():
            unwanted |= set(map(str, each.parent.glob("py4j-*.zip")))
    return [each for each in path if each not in unwanted]


def _go_on() -> None:
    """Runs the next `sitecustomize` on the path, which this module hides."""
    spec = PathFinder.find_spec("sitecustomize", [each for each in sys.path if each != _HERE])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    wanted = without_zips(sys.path)
    for each in {*sys.path} - {*wanted}:
        sys.path_importer_cache.pop(each, None)
    sys.path[:] = wanted
    if _CHATTY in sys.orig_argv:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open for the life of the process
    _go_on()
