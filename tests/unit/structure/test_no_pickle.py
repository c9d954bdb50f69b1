"""Nothing that came over the wire, or lies in a checkpoint, is unpickled: to unpickle is to run what the bytes say."""

from __future__ import annotations

import ast

from tests.helpers.imports import sources

_MODULES = {"pickle", "cloudpickle", "pickler", "cloudpickle_pickler", "dill", "marshal", "shelve", "joblib"}
_LOADS = {"load", "loads", "load_session", "Unpickler", "open"}
_LOADS_OF_BEAM = {"pickler_loads", "load_session"}
"""The names under which the fence of SparkRunner exports them."""
_READ_BACK_WHAT_THIS_RUN_WROTE = {
    "rmqio.runners.spark.bootstrap": "classes of the program's main module, and after the check of versions the task",
    "rmqio.runners.spark.reporting": "finalizers, from a task to its driver",
    "rmqio.runners.spark.streaming.levels": "functions in the pipeline that is about to run",
    "rmqio.runners.spark.streaming.execution": "a micro-batch's report, from its tasks to their driver",
    "rmqio.runners.spark.streaming.source": "the driver's planner, in Spark's own process for planning",
    "rmqio.runners.spark.streaming.stateful": "the driver's task, in the workers of its query",
    "rmqio.runners.spark.beam.operations": "functions of the pipeline",
    "rmqio.runners.spark.beam.private": "nothing: it exports what others of these use",
    "rmqio.runners.tracebacks": "a DoFn of the stage that has failed, to name its line",
    "rmqio.sql.shell.worker": "the plan of a statement, from the shell that has started the process for it",
}


def unpickles(source: str) -> bool:
    """Whether a module reads pickles."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] in _MODULES:
            if any(alias.name in _LOADS for alias in node.names):
                return True
        elif isinstance(node, ast.ImportFrom) and any(alias.name in _LOADS_OF_BEAM for alias in node.names):
            return True
        elif isinstance(node, ast.Attribute) and node.attr in _LOADS:
            value = node.value
            if (value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")) in _MODULES:
                return True
    return False


def test_the_rule_finds_what_it_looks_for() -> None:
    for source in (
        "pickle.loads(b'')",
        "a.b.cloudpickle.load(f)",
        "def f():\n    from pickle import loads",
        "from a import pickler_loads",
    ):
        assert unpickles(source)
    for source in ("pickle.dumps(1)", "json.loads('1')", "from pickle import dumps"):
        assert not unpickles(source)


def test_nothing_is_unpickled_but_what_its_own_run_wrote() -> None:
    found = {module for module, path in sources() if unpickles(path.read_text())}
    assert found == set(_READ_BACK_WHAT_THIS_RUN_WROTE)
