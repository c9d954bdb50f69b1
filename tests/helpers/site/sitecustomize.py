"""Notes in a file which runner starts a pipeline, and in what mode, also in programs that a test starts.

Python imports this module when it starts, if its folder is on PYTHONPATH; `tests.helpers.modes` puts it there, and has
the tests' own process note the same. Until a program imports a runner it does nothing, and it needs no package.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "RMQIO_TESTS_MODES"
"""The file; without it nothing is noted."""
_HERE = str(Path(__file__).parent)


def note(mode: str) -> None:
    """A line with the mode's value."""
    if path := os.environ.get(VARIABLE):
        with open(path, "a") as file:
            file.write(f"{mode}\n")


def _direct(runner: Any, pipeline: Any, options: Any) -> str:
    return "DirectRunner"


def _spark(runner: Any, pipeline: Any, options: Any) -> str:
    from apache_beam.options.pipeline_options import StandardOptions

    return "SparkRunner --streaming" if options.view_as(StandardOptions).streaming else "SparkRunner"


def _flink(runner: Any, pipeline: Any, options: Any) -> str:
    return str(runner.report(pipeline, options).mode.value)


_Mode = Callable[[Any, Any, Any], str]
# Module; class and method that runs a pipeline, what tells the mode, and whether the method waits for the end.
RUNNERS: dict[str, tuple[str, str, _Mode, bool]] = {
    # Ours checks a pipeline and hands it to this one; some tests do without the check.
    "apache_beam.runners.portability.fn_api_runner.fn_runner": ("FnApiRunner", "run_via_runner_api", _direct, True),
    "rmqio.runners.spark.runner": ("SparkRunner", "run_pipeline", _spark, False),
    "rmqio.runners.flink.runner": ("FlinkRunner", "run_portable_pipeline", _flink, False),
}


def watch(module: ModuleType) -> None:
    """From now on the runner in it notes what it starts: what it refuses, it does not start."""
    name, method, mode_of, waits = RUNNERS[module.__name__]
    kind = getattr(module, name)
    run = getattr(kind, method)

    @functools.wraps(run)
    def noted(self: Any, pipeline: Any, options: Any) -> Any:
        if waits:
            note(mode_of(self, pipeline, options))
            return run(self, pipeline, options)
        result = run(self, pipeline, options)  # first: what it raises is the user's
        note(mode_of(self, pipeline, options))
        return result

    setattr(kind, method, noted)


class Watched(Loader):
    """Another loader, and the watch on what it has loaded."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        watch(module)

    def __getattr__(self, name: str) -> Any:
        """Gives all else that a loader can do, e.g. give the source to tracebacks."""
        return getattr(self._loader, name)


class Watching(MetaPathFinder):
    """Has the runners watched as soon as they are imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for everything that is no runner: others look for it."""
        if fullname not in RUNNERS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = Watched(spec.loader)
                return spec
        return None


def watch_all() -> None:
    """Watches the runners that are imported already, and those that will be."""
    for name in RUNNERS.keys() & sys.modules.keys():
        watch(sys.modules[name])
    sys.meta_path.insert(0, Watching())


def _go_on() -> None:
    """With the next module of this name: those before have found this one, as the one of our Spark runner does."""
    spec = PathFinder.find_spec("sitecustomize", sys.path[sys.path.index(_HERE) + 1 :])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    watch_all()
    _go_on()
