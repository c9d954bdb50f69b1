"""Prepares a worker process for the stages of a pipeline: makes user code importable, so that it can be unpickled.

Spark's workers are not the driver's process, and their `__main__` is another module. DoFns are pickled by value, but
elements are not: pickle writes `__main__.Point`, and the worker must have such a class. Therefore the classes that the
program's main module defines are sent to the workers as well, with the coders and schemas that it registered.
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
from typing import Any, Final

from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions, WorkerOptions
from pyspark import SparkFiles, cloudpickle

from rmqio.errors import LocalError
from rmqio.runners.beam.versions import VARIABLE
from rmqio.runners.spark.beam.private import dump_session, load_session, pickler_dumps, pickler_loads
from rmqio.runners.spark.errors import LOGGER
from rmqio.runners.spark.options import is_given

# Makes a task fail with one clear error in a worker whose Beam or rmqio is not the driver's.
#
# Pickled DoFns, coders and tasks of one version are not those of another. The first failure depends on the versions:
# a name is missing, or a task reads something else than what it was sent. The check therefore comes before everything
# else. It is pickled by value and uses the standard library alone, so it also runs where rmqio lacks this module.
#
# PySpark itself compares the minor versions of Python. Imports Beam in the driver, and in tasks only.

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


@dataclass(frozen=True)
class Bootstrap:
    """The settings with which the workers of one pipeline start."""

    packages: str | None = None  # the folder among Spark's files that holds shipped packages
    classes: bytes | None = None  # the classes of the main module, pickled by value
    registries: bytes | None = None  # Beam's registries of coders and schemas, pickled
    must_load: bool = False  # --save_main_session: an object that does not load is an error
    plugins: tuple[str, ...] = ()
    log_level: int = logging.WARNING
    log_levels: Mapping[str, int] = field(default_factory=dict)


def bootstrap_for(options: PipelineOptions, packages: str | None) -> Bootstrap:
    """Returns what the workers of a pipeline need from this process.

    Raises:
      LocalError: a log level is unknown, or `--save_main_session` was given and an object cannot be pickled.
    """
    setup = options.view_as(SetupOptions)
    worker = options.view_as(WorkerOptions)
    # Beam's pipeline sets the option to False if the user gave neither flag
    wanted = True if setup.save_main_session else False if is_given(options, "no_save_main_session") else None
    overrides: Mapping[str, str | int] = worker.sdk_harness_log_level_overrides or {}
    return Bootstrap(
        packages,
        _main_classes(must=wanted is True) if wanted is not False else None,
        _registries(must=wanted is True) if wanted is not False else None,
        wanted is True,
        tuple(setup.beam_plugins or ()),
        _level("--default_sdk_harness_log_level", worker.default_sdk_harness_log_level or "WARNING"),
        {name: _level("--sdk_harness_log_level_overrides", each) for name, each in overrides.items()},
    )


def _level(flag: str, level: str | int) -> int:
    if str(level).isdecimal():
        return int(level)
    found = logging.getLevelNamesMapping().get(str(level))
    if found is None:
        raise LocalError(f"{flag}: {level!r} is not a log level. Use a level of Python's logging, such as INFO or 20")
    return found


def _main_classes(must: bool) -> bytes | None:
    main = sys.modules["__main__"]
    classes = {
        name: each for name, each in vars(main).items() if isinstance(each, type) and each.__module__ == "__main__"
    }
    if not classes:
        return None
    try:
        return bytes(pickler_dumps(classes))
    except Exception as error:
        if must:
            raise LocalError(
                f"--save_main_session: a class of the main module cannot be pickled: {error}. Move the class into a "
                "module that the workers can import"
            ) from error
    # Then each class by itself: the classes that the elements need may be among those that can be pickled
    return bytes(pickler_dumps({name: each for name, each in classes.items() if _pickles(each)}))


def _pickles(each: type) -> bool:
    try:
        pickler_dumps(each)
    except Exception:  # noqa: BLE001  a user's class may raise any error
        return False
    return True


def _registries(must: bool) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "session")
        try:
            dump_session(str(file))
        except Exception as error:
            if must:
                raise LocalError(
                    f"--save_main_session: Beam's registries of coders and schemas cannot be pickled: {error}. Define "
                    "what the program registers in a module that the workers can import"
                ) from error
            return None
        return file.read_bytes()


# ---- in the worker ---------------------------------------------------------------------------------------------------

_current = Bootstrap()  # a worker process may serve several pipelines, one after the other


def begin(bootstrap: Bootstrap) -> None:
    """Prepares this worker process for the pipeline. Does nothing if it is already prepared."""
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
            # The pipeline may not need it. If it does, the error about the missing class says so.
            LOGGER.info("the driver's main module did not load in this worker: %s: %s", type(error).__name__, error)


def _load_classes(pickled: bytes) -> None:
    # A new module: Spark's daemon runs in the real one, and the user's names must not replace the names there
    main = types.ModuleType("__main__")
    vars(main).update(pickler_loads(pickled))
    sys.modules["__main__"] = main


def _load_registries(pickled: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "session")
        file.write_bytes(pickled)
        load_session(str(file))


def _forget_packages(packages: str | None) -> None:
    """Unloads the packages of an earlier pipeline: this one may have other versions of them."""
    if packages is None:
        return
    folder = SparkFiles.get(packages)
    sys.path[:] = [each for each in sys.path if each != folder]
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(folder + os.sep):
            del sys.modules[name]


def _log(before: Bootstrap, bootstrap: Bootstrap) -> None:
    logging.basicConfig()  # to stderr, which Spark forwards to the executor's log
    logging.getLogger().setLevel(bootstrap.log_level)
    for name in before.log_levels:
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in bootstrap.log_levels.items():
        logging.getLogger(name).setLevel(level)
