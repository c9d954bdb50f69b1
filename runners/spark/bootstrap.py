"""What a worker process does before it runs a stage of a pipeline: user code becomes importable and unpicklable.

Spark's workers are other processes than the driver, with another `__main__`. A DoFn travels by value, but its elements
do not: pickle writes `__main__.Point`, and the worker must have one. So the classes that the program's main module
defines travel, too, and the coders and schemas that it registered.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import tempfile
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions, WorkerOptions
from pyspark import SparkFiles

from rmqio.errors import LocalError
from rmqio.runners.spark.beam.private import pickler
from rmqio.runners.spark.log import LOGGER
from rmqio.runners.spark.options import is_given


@dataclass(frozen=True)
class Bootstrap:
    """What the workers of one pipeline begin with."""

    packages: str | None = None  # the folder among Spark's files that holds shipped packages
    classes: bytes | None = None  # of the main module, pickled by value
    registries: bytes | None = None  # Beam's, of coders and schemas
    must_load: bool = False  # --save_main_session: what does not load is an error
    plugins: tuple[str, ...] = ()
    log_level: int = logging.WARNING
    log_levels: Mapping[str, int] = field(default_factory=dict)


def bootstrap_for(options: PipelineOptions, packages: str | None) -> Bootstrap:
    """What the workers of a pipeline need to know of this process.

    Raises:
      LocalError: a log level is none, or `--save_main_session` was given and something does not pickle.
    """
    setup = options.view_as(SetupOptions)
    worker = options.view_as(WorkerOptions)
    # Beam's pipeline sets the option to False where nothing was said
    wanted = True if setup.save_main_session else False if is_given(options, "no_save_main_session") else None
    overrides: Mapping[str, Any] = worker.sdk_harness_log_level_overrides or {}
    return Bootstrap(
        packages,
        _main_classes(must=wanted is True) if wanted is not False else None,
        _registries(must=wanted is True) if wanted is not False else None,
        wanted is True,
        tuple(setup.beam_plugins or ()),
        _level("--default_sdk_harness_log_level", worker.default_sdk_harness_log_level or "WARNING"),
        {name: _level("--sdk_harness_log_level_overrides", each) for name, each in overrides.items()},
    )


def _level(flag: str, level: Any) -> int:
    if str(level).isdecimal():
        return int(level)
    found = logging.getLevelNamesMapping().get(str(level))
    if found is None:
        raise LocalError(f"{flag}: {level!r} is no level of Python's logging, such as INFO or 20")
    return found


def _main_classes(must: bool) -> bytes | None:
    main = sys.modules["__main__"]
    classes = {
        name: each for name, each in vars(main).items() if isinstance(each, type) and each.__module__ == "__main__"
    }
    if not classes:
        return None
    try:
        return bytes(pickler.dumps(classes))
    except Exception as error:
        if must:
            raise LocalError(f"--save_main_session: a class of the main module does not pickle: {error}") from error
    # Each for itself then: one that the elements need may be among those that do
    return bytes(pickler.dumps({name: each for name, each in classes.items() if _pickles(each)}))


def _pickles(each: type) -> bool:
    try:
        pickler.dumps(each)
    except Exception:  # noqa: BLE001  whatever a user's class raises
        return False
    return True


def _registries(must: bool) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "session")
        try:
            pickler.dump_session(str(file))
        except Exception as error:
            if must:
                raise LocalError(f"--save_main_session: Beam's registries do not pickle: {error}") from error
            return None
        return file.read_bytes()


# ---- in the worker ---------------------------------------------------------------------------------------------------

_current = Bootstrap()  # a worker process serves several pipelines, one after the other


def begin(bootstrap: Bootstrap) -> None:
    """Makes this worker process one of the pipeline's; does nothing if it is one."""
    global _current
    if bootstrap == _current:
        return
    if _current.packages != bootstrap.packages:
        _forget_packages(_current.packages)
        if bootstrap.packages is not None:
            sys.path.insert(1, SparkFiles.get(bootstrap.packages))
            importlib.invalidate_caches()
    _log(_current, bootstrap)
    _current = Bootstrap(bootstrap.packages, log_level=bootstrap.log_level, log_levels=bootstrap.log_levels)
    for plugin in bootstrap.plugins:
        importlib.import_module(plugin)
    _load(bootstrap.must_load, _load_classes, bootstrap.classes)
    _load(bootstrap.must_load, _load_registries, bootstrap.registries)
    _current = bootstrap


def _load(must: bool, load: Callable[[bytes], None], pickled: bytes | None) -> None:
    if pickled is not None:
        try:
            load(pickled)
        except Exception as error:
            if must:
                raise
            # Nobody may need it. Who does is told by the error of what is missing.
            LOGGER.info("the driver's main module is not here: %s: %s", type(error).__name__, error)


def _load_classes(pickled: bytes) -> None:
    # A module of its own: Spark's daemon runs in the real one, whose names the user's must not replace
    main = types.ModuleType("__main__")
    vars(main).update(pickler.loads(pickled))
    sys.modules["__main__"] = main


def _load_registries(pickled: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "session")
        file.write_bytes(pickled)
        pickler.load_session(str(file))


def _forget_packages(packages: str | None) -> None:
    """An earlier pipeline's packages must not stand in for another version of them."""
    if packages is None:
        return
    folder = SparkFiles.get(packages)
    sys.path[:] = [each for each in sys.path if each != folder]
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(folder + os.sep):
            del sys.modules[name]


def _log(before: Bootstrap, bootstrap: Bootstrap) -> None:
    logging.basicConfig()  # to stderr, which Spark brings to where an executor logs
    logging.getLogger().setLevel(bootstrap.log_level)
    for name in before.log_levels:
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in bootstrap.log_levels.items():
        logging.getLogger(name).setLevel(level)
