"""Private names of Beam are used behind the fences only, so that another version of Beam is met there.

As `test_layers` by reading the sources. What a class of ours gets from one of Beam's that it extends is out of sight.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.helpers.imports import ROOT, Import, imports_of, is_in, sources

# One for what all runners use, one for each runner that has more, and the address of Beam's Maven repository.
FENCES = ("rmqio.runners.beam", "rmqio.runners.spark.beam", "rmqio.runners.flink._beam", "rmqio.local.downloads._beam")
PATCHES = "rmqio.runners.spark.beam.patches"
# Neither documented for users nor in Beam's lists of public names; most say of themselves "for internal use only".
PRIVATE = (
    "apache_beam.coders.coder_impl",
    "apache_beam.coders.coders",
    "apache_beam.internal",
    "apache_beam.metrics.cells",
    "apache_beam.metrics.execution",
    "apache_beam.metrics.monitoring_infos",
    "apache_beam.portability",
    "apache_beam.pvalue.SideInputData",
    "apache_beam.runners",
    "apache_beam.transforms.core",
    "apache_beam.transforms.environments",
    "apache_beam.transforms.trigger",
    "apache_beam.utils",
)
_CORE = ("CombineFn", "DoFn", "RestrictionProvider", "WatermarkEstimatorProvider", "Windowing")
_TRIGGERS = (
    "AccumulationMode", "AfterAll", "AfterAny", "AfterCount", "AfterEach", "AfterProcessingTime", "AfterWatermark",
    "DefaultTrigger", "OrFinally", "Repeatedly",
)  # fmt: skip
PUBLIC = (
    "apache_beam.runners.DirectRunner",
    "apache_beam.runners.PipelineRunner",
    "apache_beam.runners.runner",
    "apache_beam.utils.timestamp",
    "apache_beam.utils.windowed_value",
    *(f"apache_beam.transforms.core.{name}" for name in _CORE),
    *(f"apache_beam.transforms.trigger.{name}" for name in _TRIGGERS),
)
# Names with an underscore that are not of Beam: of named tuples, and of PySpark.
OTHERS = {"_asdict", "_fields", "_make", "_replace"}
OTHERS |= {
    "_accumulatorServer",
    "_active_spark_context",
    "_ensure_initialized",
    "_gateway",
    "_jsc",
    "_jsparkSession",
    "_jvm",
}
# Much comes from Beam here, so whatever has such a name and is not the module's own may be Beam's.
NEAR_BEAM = ("rmqio.runners", "rmqio.transforms", "rmqio.pipelines")
# Beam comes in through some of their modules. Their classes may read the private fields of others of their own module.
BESIDE_BEAM = (
    "rmqio.sql", "rmqio.rules", "rmqio.enrich", "rmqio.yaml", "rmqio.serde", "rmqio.pyspark", "rmqio.audit",
    "rmqio.skew",
)  # fmt: skip


def is_hidden(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_private(path: str) -> bool:
    """Whether a name of Beam, in full, is private. Modules that hold public names, too, may be imported."""
    if not is_in(path, "apache_beam"):
        return False
    if any(map(is_hidden, path.split("."))):
        return True
    holds_public = any(public.startswith(f"{path}.") for public in PUBLIC)
    return is_in(path, *PRIVATE) and not is_in(path, *PUBLIC) and not holds_public


def bound_names(source: str, module: str, *, is_package: bool = False) -> dict[str, str]:
    """Resolves the imported names of a module, in full."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            targets = imports_of(ast.unparse(node), module, "", is_package=is_package)
            found.update((alias.asname or alias.name, i.target) for alias, i in zip(node.names, targets, strict=True))
    return found


def path_of(node: ast.AST, names: dict[str, str]) -> str | None:
    """The full name that a chain of attributes stands for; None where it does not begin with an imported name."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        before = path_of(node.value, names)
        return None if before is None else f"{before}.{node.attr}"
    return None


def is_own(node: ast.AST) -> bool:
    """`self`, `cls` and `super()`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def own_names(source: str) -> set[str]:
    """Returns the attributes that the classes of a module define."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            for each in ast.walk(node):
                if isinstance(each, ast.FunctionDef):
                    found.add(each.name)
                elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and is_own(each.value):
                    found.add(each.attr)
                elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    found.add(each.target.id)
    return found


def holes(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Line by line, what a module uses of Beam past the fence."""
    is_fence = is_in(module, *FENCES)
    names = bound_names(source, module, is_package=is_package)
    own = own_names(source) if is_in(module, *BESIDE_BEAM) else set()

    def beams(path: str | None) -> bool:
        return path is not None and is_in(path, "apache_beam", *FENCES)

    def imported(each: Import) -> bool:
        hidden = is_in(each.target, *FENCES) and is_hidden(each.target.rpartition(".")[2])
        return is_private(each.target) or (hidden and each.target not in FENCES)

    def may_be_beams(name: str, of: ast.AST) -> bool:
        is_near = is_in(module, *NEAR_BEAM) or (is_in(module, *BESIDE_BEAM) and name not in own)
        is_near = is_near or beams(path_of(of, names))
        return is_near and is_hidden(name) and name not in OTHERS and not is_own(of)

    if not is_fence:
        for each in imports_of(source, module, "", is_package=is_package):
            if imported(each):
                yield f"{each.where.lstrip(':')}: imports {each.target}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            path = path_of(node, names)
            if isinstance(node.ctx, ast.Store | ast.Del) and beams(path) and module != PATCHES:
                yield f"{node.lineno}: changes {path}"
            if is_fence:
                continue
            if may_be_beams(node.attr, node.value):
                yield f"{node.lineno}: uses {ast.unparse(node)}"
            elif path is not None and is_private(path):
                yield f"{node.lineno}: uses {path}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            name = getattr(node.args[1], "value", None)
            if node.func.id == "setattr" and beams(path_of(node.args[0], names)) and module != PATCHES:
                yield f"{node.lineno}: changes {ast.unparse(node.args[0])}"
            by_name = node.func.id in ("getattr", "hasattr", "setattr", "delattr")
            if by_name and isinstance(name, str) and not is_fence and may_be_beams(name, node.args[0]):
                yield f"{node.lineno}: uses {name} of {ast.unparse(node.args[0])}"


def test_what_is_private_of_beam_is_used_inside_the_fence_only() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{hole}"
        for module, path in sources()
        for hole in holes(path.read_text(), module, is_package=path.name == "__init__.py")
    ]
    assert not found, "\n" + "\n".join(found)


def test_each_fence_is_there_and_is_one() -> None:
    """Else a rule that lets nothing through would go unseen."""
    found = {module: path.read_text() for module, path in sources() if is_in(module, *FENCES)}
    for fence in FENCES:
        of_fence = [(module, text) for module, text in found.items() if is_in(module, fence)]
        assert any(is_private(i.target) for module, text in of_fence for i in imports_of(text, module, "")), fence


def test_a_fence_belongs_to_the_modules_around_it() -> None:
    for module, path in sources():
        for each in imports_of(path.read_text(), module, str(path), is_package=path.name == "__init__.py"):
            for fence in FENCES:
                if each.is_of(fence):
                    assert is_in(module, fence.rpartition(".")[0]), f"{each.where} imports {fence}"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("apache_beam", False),
        ("apache_beam.Map", False),
        ("apache_beam.internal", True),
        ("apache_beam.internal.pickler", True),
        ("apache_beam.coders", False),
        ("apache_beam.coders.BytesCoder", False),
        ("apache_beam.coders.coder_impl.create_InputStream", True),
        ("apache_beam.coders.coders.GlobalWindowCoder", True),
        ("apache_beam.metrics.Metrics", False),
        ("apache_beam.metrics.monitoring_infos", True),
        ("apache_beam.portability.common_urns", True),
        ("apache_beam.pvalue.PCollection", False),
        ("apache_beam.pvalue.SideInputData", True),
        ("apache_beam.runners.common", True),
        ("apache_beam.runners.runner", False),
        ("apache_beam.runners.runner.PipelineState", False),
        ("apache_beam.runners.runners", True),
        ("apache_beam.runners.worker.operations", True),
        ("apache_beam.runners.portability.fn_api_runner", True),
        ("apache_beam.transforms.core", False),
        ("apache_beam.transforms.core.DoFnInfo", True),
        ("apache_beam.transforms.core.Windowing", False),
        ("apache_beam.transforms.environments", True),
        ("apache_beam.transforms.trigger", False),
        ("apache_beam.transforms.trigger.AfterCount", False),
        ("apache_beam.transforms.trigger.GeneralTriggerDriver", True),
        ("apache_beam.transforms.window.FixedWindows", False),
        ("apache_beam.transforms.window._Hidden", True),
        ("apache_beam.utils.subprocess_server", True),
        ("apache_beam.utils.timestamp.Timestamp", False),
        ("apache_beam.__version__", False),
        ("apache_beamed.internal", False),
    ],
)
def test_what_counts_as_private(path: str, expected: bool) -> None:
    assert is_private(path) is expected


WORKER = "rmqio.runners.spark.worker.task"
FENCE = "rmqio.runners.spark.beam.private"
# module, source, what is found
CASES: list[tuple[str, str, list[str]]] = [
    (WORKER, "import apache_beam as beam\nbeam.Map(len)", []),
    (WORKER, "from apache_beam.internal import pickler", ["1: imports apache_beam.internal.pickler"]),
    (WORKER, "def f():\n    import apache_beam.internal.util", ["2: imports apache_beam.internal.util"]),
    (WORKER, "import apache_beam as beam\nbeam.internal.pickler", ["2: uses apache_beam.internal.pickler",
                                                                  "2: uses apache_beam.internal"]),
    (WORKER, "import apache_beam\napache_beam.runners.common", ["2: uses apache_beam.runners.common"]),
    (WORKER, "from apache_beam.coders.coder_impl import create_OutputStream as out",
     ["1: imports apache_beam.coders.coder_impl.create_OutputStream"]),
    (WORKER, "import importlib\nimportlib.import_module('apache_beam.runners.worker.operations')",
     ["2: imports apache_beam.runners.worker.operations"]),
    (WORKER, "from apache_beam.transforms import trigger\ntrigger.AfterCount(1)", []),
    (WORKER, "from apache_beam.transforms import trigger\ntrigger._Never()", ["2: uses trigger._Never"]),
    (WORKER, "from apache_beam.transforms import trigger\nclass D(trigger.GeneralTriggerDriver): pass",
     ["2: uses apache_beam.transforms.trigger.GeneralTriggerDriver"]),
    (WORKER, "from apache_beam.transforms import trigger as t\nt.Always()",
     ["2: uses apache_beam.transforms.trigger.Always"]),
    (WORKER, "from apache_beam.transforms.core import DoFnInfo", ["1: imports apache_beam.transforms.core.DoFnInfo"]),
    (WORKER, "from rmqio.runners.spark.beam.private import operations\noperations.DoOperation", []),
    (WORKER, "from rmqio.runners.spark.beam.private import core\ncore._DoFnParam", ["2: uses core._DoFnParam"]),
    (WORKER, "from rmqio.runners.spark.beam.private import _hidden",
     ["1: imports rmqio.runners.spark.beam.private._hidden"]),
    (WORKER, "def f(stream): stream._clear()", ["1: uses stream._clear"]),
    (WORKER, "def f(x): return x.y()._callbacks", ["1: uses x.y()._callbacks"]),
    (WORKER, "def f(x): return getattr(x, '_fn', None)", ["1: uses _fn of x"]),
    (WORKER, "def f(x): return hasattr(x, '__len__') or getattr(self, '_fn')", []),
    (WORKER, "def f(self, cls): self._a, cls._b, super()._c, t._replace(), session._jvm, x.__class__", []),
    (WORKER, "from rmqio.runners.spark.beam.private import core\ncore.inspect = None",
     [f"2: changes {FENCE}.core.inspect"]),
    (WORKER, "from apache_beam import DoFn\nDoFn.process = None", ["2: changes apache_beam.DoFn.process"]),
    (WORKER, "from apache_beam import DoFn\nsetattr(DoFn, 'process', None)", ["2: changes DoFn"]),
    (WORKER, "from apache_beam import DoFn\ndel DoFn.process", ["2: changes apache_beam.DoFn.process"]),
    (WORKER, "from os import environ\nenviron.x = 1", []),
    (FENCE, "from apache_beam.transforms import core\ncore._DoFnParam", []),
    (FENCE, "from apache_beam.transforms import core\ncore.x = 1", ["2: changes apache_beam.transforms.core.x"]),
    (PATCHES, "from apache_beam.transforms import core\ncore.x = 1", []),
    ("rmqio.runners.options", "from apache_beam.portability import common_urns",
     ["1: imports apache_beam.portability.common_urns"]),
    ("rmqio.runners.beam.portable", "from apache_beam.portability import common_urns", []),
    ("rmqio.runners.options", "from rmqio.runners import _beam", []),
    ("rmqio.transforms.read", "from apache_beam.utils import counters", ["1: imports apache_beam.utils.counters"]),
    ("rmqio.sql.runtime.reads", "def f(x): return x._fn", ["1: uses x._fn"]),
    ("rmqio.rules.engine", "class A:\n    def __init__(self, other): self._a = other._a", []),
    ("rmqio.rules.engine", "class A:\n    _a: int\n    def f(self, other): return other._a, other._b",
     ["3: uses other._b"]),
    ("rmqio.serde.json", "from apache_beam import DoFn\nclass A:\n    def _a(self): DoFn._a", ["3: uses DoFn._a"]),
]  # fmt: skip


@pytest.mark.parametrize(("module", "source", "expected"), CASES)
def test_the_rule_finds_what_it_should_and_no_more(module: str, source: str, expected: list[str]) -> None:
    assert list(holes(source, module)) == expected
