"""Private names of Beam are used behind the fences only, so that another version of Beam is met there.

As `test_layers` by reading the sources. What a class of ours gets from one of Beam's that it extends is out of sight.
"""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator

import pytest

from tests.helpers.imported_names import ImportedNames, called
from tests.helpers.imports import ROOT, Import, all_imports, imports_of, is_in, sources

# One for what all runners use, one for each runner that has more, the address of Beam's Maven repository, the types of
# rows for SQL, and what measures keys.
FENCES = (
    "rmqio.runners.beam", "rmqio.runners.spark.beam", "rmqio.runners.flink.beam", "rmqio.local.beam",
    "rmqio.sql.transform.beam", "rmqio.skew.beam", "rmqio.transforms.beam",
)  # fmt: skip
# Only these modules change Beam: in a worker by one call; in the user's process for the time of a call; and the last
# two for good: with the same results, and for a class of ours.
PATCHES = (
    "rmqio.runners.spark.beam.patches", "rmqio.runners.beam.in_process", "rmqio.runners.beam.speedups",
    "rmqio.transforms.beam",
)  # fmt: skip
PRIVATE_NAMES = "rmqio.runners.spark.beam.private"
# All else of Beam is private: a new import either is of a documented name, and is listed here, or goes behind a fence.
# Beam's documentation begins with these packages; their classes are public, and not the modules in them.
PACKAGES = ("apache_beam", "apache_beam.coders", "apache_beam.metrics", "apache_beam.typehints")
PUBLIC_MODULES = (
    "apache_beam.io.fileio",
    "apache_beam.io.filesystem",
    "apache_beam.io.filesystems",
    "apache_beam.options.pipeline_options",
    "apache_beam.options.value_provider",
    "apache_beam.runners.runner",
    "apache_beam.transforms.combiners",
    "apache_beam.transforms.userstate",
    "apache_beam.transforms.window",
    "apache_beam.typehints.row_type",
    "apache_beam.utils.timestamp",
    "apache_beam.utils.windowed_value",
    "apache_beam.window",
)
# "For internal use only", they say, but DoFns of users get their values.
REACH_USERS = ("apache_beam.utils.timestamp",)
_OF_MODULES = {
    "coders": ("registry",),
    "io.iobase": ("RestrictionProgress", "RestrictionTracker", "WatermarkEstimator"),
    "metrics.metric": ("Metrics", "MetricsFilter"),
    "pvalue": ("AsDict", "AsIter", "AsList", "AsSingleton", "PBegin", "PCollection", "TaggedOutput"),
    "transforms.core": ("CombineFn", "DoFn", "RestrictionProvider", "WatermarkEstimatorProvider", "Windowing"),
    "transforms.display": ("DisplayDataItem",),
    "transforms.error_handling": ("ErrorHandler",),
    "transforms.timeutil": ("TimeDomain",),
    "transforms.trigger": (
        "AccumulationMode", "AfterAll", "AfterAny", "AfterCount", "AfterEach", "AfterProcessingTime", "AfterWatermark",
        "DefaultTrigger", "OrFinally", "Repeatedly",
    ),
    "typehints.typehints": ("ListConstraint", "TupleConstraint", "UnionConstraint"),
}  # fmt: skip
PUBLIC_NAMES = tuple(f"apache_beam.{module}.{name}" for module, names in _OF_MODULES.items() for name in names)
PUBLIC = (*PUBLIC_MODULES, *PUBLIC_NAMES)
BY_NAME = ("getattr", "hasattr", "setattr", "delattr")
# They change their first argument. `setattr` is also a method of pytest's monkeypatch, and `__setattr__` one of `type`.
CHANGING_FUNCTIONS = ("setattr", "delattr", "__setattr__", "__delattr__", "setitem", "delitem", "patch")
OF_PATCH = ("object", "dict", "multiple")  # of mock's `patch`
# They change the object, a dict or a list, that they are called on.
CHANGING_METHODS = ("append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update")
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
OTHERS.add("_load_from_dict")  # Lark's; the parsers that Lark's own generator writes call it
# Much comes from Beam here, so whatever has such a name and is not the module's own may be Beam's.
NEAR_BEAM = ("rmqio.runners", "rmqio.transforms", "pipelines")
# Beam comes in through some of their modules. Their classes may read the private fields of others of their own module.
BESIDE_BEAM = (
    "rmqio.sql", "rmqio.rules", "rmqio.enrich", "rmqio.yaml", "rmqio.serde", "rmqio.pyspark", "rmqio.audit",
    "rmqio.skew",
)  # fmt: skip
# Names of Beam and of fences have "beam" in them; where there is none, only a hidden name of something else can be it.
MEETS_BEAM = re.compile(r"beam|(?<!\bself)(?<!\bcls)\._[A-Za-z]|\b(get|has|set|del)attr\b")


def is_hidden(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_private(path: str) -> bool:
    """Whether a name of Beam, in full, is private. Modules that hold public names, too, may be imported."""
    if not is_in(path, "apache_beam"):
        return False
    parts = path.split(".")
    if any(map(is_hidden, parts)):
        return True
    if is_in(path, *PUBLIC) or any(public.startswith(f"{path}.") for public in PUBLIC):
        return False
    of_packages = (parts[len(package.split("."))] for package in PACKAGES if path.startswith(f"{package}."))
    return path not in PACKAGES and not any(name[0].isupper() or name.startswith("__") for name in of_packages)


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


def changed(node: ast.AST) -> ast.AST | None:
    """Returns the expression whose object a node changes; a string is the full name of one. None: the node does not."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        return node
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return node.value
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING_METHODS:
        return node.func.value
    of = node.func.value if isinstance(node.func, ast.Attribute) else None
    of_patch = isinstance(of, ast.Name | ast.Attribute) and ast.unparse(of).split(".")[-1] == "patch"
    if node.args and (called(node) in CHANGING_FUNCTIONS or (of_patch and called(node) in OF_PATCH)):
        return node.args[0]
    return None


def holes(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Line by line, what a module uses of Beam past the fence."""
    if not MEETS_BEAM.search(source):
        return
    is_fence = is_in(module, *FENCES)
    names = ImportedNames(source, module, is_package=is_package)
    own = own_names(source) if is_in(module, *BESIDE_BEAM) else set()

    def beams(node: ast.AST) -> str | None:
        """Returns the name of Beam, or of a fence, that an expression may stand for."""
        paths = {str(node.value)} if isinstance(node, ast.Constant) else names.paths(node)
        return next((path for path in sorted(paths) if is_in(path, "apache_beam", *FENCES)), None)

    def imported(each: Import) -> bool:
        hidden = is_in(each.target, *FENCES) and is_hidden(each.target.rpartition(".")[2])
        return is_private(each.target) or (hidden and each.target not in FENCES)

    def may_be_beams(name: str, of: ast.AST) -> bool:
        is_near = is_in(module, *NEAR_BEAM) or (is_in(module, *BESIDE_BEAM) and name not in own)
        is_near = is_near or beams(of) is not None
        return is_near and is_hidden(name) and name not in OTHERS and not is_own(of)

    if not is_fence:
        for each in imports_of(source, module, "", is_package=is_package):
            if imported(each):
                yield f"{each.where.lstrip(':')}: imports {each.target}"
    for node in ast.walk(names.tree):
        target = None if module in PATCHES else changed(node)
        path = None if target is None else beams(target)
        if path is not None:
            yield f"{node.lineno}: changes {path}"  # type: ignore[attr-defined]
        if is_fence:
            continue
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                if (beams(base) or "").startswith(f"{PRIVATE_NAMES}."):
                    yield f"{node.lineno}: extends {ast.unparse(base)}"
        elif isinstance(node, ast.Attribute):
            path = beams(node)
            if may_be_beams(node.attr, node.value):
                yield f"{node.lineno}: uses {ast.unparse(node)}"
            elif path is not None and is_private(path):
                yield f"{node.lineno}: uses {path}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            name = getattr(node.args[1], "value", None)
            if node.func.id in BY_NAME and name is None and beams(node.args[0]) is not None:
                yield f"{node.lineno}: {node.func.id} of {ast.unparse(node.args[0])}, by a name that is not a constant"
            if node.func.id in BY_NAME and isinstance(name, str) and may_be_beams(name, node.args[0]):
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
    for each in all_imports():
        for fence in FENCES:
            if each.is_of(fence):
                assert is_in(each.module, fence.rpartition(".")[0]), f"{each.where} imports {fence}"


@pytest.mark.parametrize("path", [*PUBLIC_MODULES, *PUBLIC_NAMES])
def test_what_counts_as_public_is_there_and_not_for_internal_use(path: str) -> None:
    found = pkgutil.resolve_name(path)
    says = " ".join((getattr(found, "__doc__", None) or "").split()).lower()
    assert "internal use only" not in says or path in REACH_USERS


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
        ("apache_beam.new", True),
        ("apache_beam.new.Thing", True),
        ("apache_beam.DoFn.BundleFinalizerParam", False),
        ("apache_beam.coders.registry.register_coder", False),
        ("apache_beam.metrics.metric.MetricResults", True),
        ("apache_beam.pipeline.AppliedPTransform", True),
        ("apache_beam.pipeline.PipelineVisitor", True),
        ("apache_beam.transforms.timeutil.TimestampCombinerImpl", True),
        ("apache_beam.typehints.Tuple", False),
        ("apache_beam.typehints.native_type_compatibility", True),
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
    (WORKER, "from apache_beam import DoFn\nsetattr(DoFn, 'process', None)", ["2: changes apache_beam.DoFn"]),
    (WORKER, "from apache_beam import DoFn\ndel DoFn.process", ["2: changes apache_beam.DoFn.process"]),
    (WORKER, "from os import environ\nenviron.x = 1", []),
    (WORKER, "from apache_beam import DoFn\nx = DoFn\nx.process = None", ["3: changes apache_beam.DoFn.process"]),
    (WORKER, "from apache_beam import DoFn\ndef f():\n    x: type = DoFn\n    x.process = None",
     ["4: changes apache_beam.DoFn.process"]),
    (WORKER, "def f():\n    x.process = None\nimport apache_beam as beam\nx = y = beam.DoFn",
     ["2: changes apache_beam.DoFn.process"]),
    (WORKER, "import apache_beam as beam\n(x, y) = (1, beam.DoFn)\ny.process = x",
     ["3: changes apache_beam.DoFn.process"]),
    (WORKER, "import apache_beam as beam\nfor x in (beam.DoFn, beam.CombineFn): x.a = 1",
     ["2: changes apache_beam.CombineFn.a"]),
    (WORKER, "import apache_beam as beam\ndef f(x=beam.DoFn, *, y=None): x.a = y.a = 1",
     ["2: changes apache_beam.DoFn.a"]),
    (WORKER, "import apache_beam as beam\nx = None\ndef f():\n    global x\n    x = beam.DoFn\nx.a = 1",
     ["6: changes apache_beam.DoFn.a"]),
    (WORKER, "import apache_beam as beam\nx = getattr(beam, 'DoFn')\nx.a = 1", ["3: changes apache_beam.DoFn.a"]),
    (WORKER, "import apache_beam as beam\nfrom typing import Any, cast\ncast(Any, beam.DoFn).a = 1",
     ["3: changes apache_beam.DoFn.a"]),
    (WORKER, "import sys\nsys.modules['apache_beam'].DoFn.a = 1", ["2: changes apache_beam.DoFn.a"]),
    (WORKER, "import apache_beam as beam\n(x := beam.DoFn if 1 else None).a += 1", ["2: changes apache_beam.DoFn.a"]),
    (WORKER, "import apache_beam as beam\nx = beam.DoFn\nsetattr(x, 'a', 1)", ["3: changes apache_beam.DoFn"]),
    (WORKER, "import apache_beam as beam\nx = beam.DoFn\ntype.__setattr__(x, 'a', 1)",
     ["3: changes apache_beam.DoFn"]),
    (WORKER, "import apache_beam as beam\ndef f(monkeypatch): monkeypatch.setattr(beam.DoFn, 'a', 1)",
     ["2: changes apache_beam.DoFn"]),
    (WORKER, "def f(monkeypatch): monkeypatch.setattr('apache_beam.DoFn.a', 1)", ["1: changes apache_beam.DoFn.a"]),
    (WORKER, "import apache_beam as beam\nfrom unittest import mock\nmock.patch.object(beam.DoFn, 'a')",
     ["3: changes apache_beam.DoFn"]),
    (WORKER, "from unittest.mock import patch\n@patch('apache_beam.DoFn.a')\ndef f(): pass",
     ["2: changes apache_beam.DoFn.a"]),
    (WORKER, "import apache_beam as beam\nx = vars(beam.DoFn)\nx['a'] = 1", ["3: changes apache_beam.DoFn.__dict__"]),
    (WORKER, "import apache_beam as beam\nx = beam.DoFn.all\nx.update(a=1)\ndel x['b']",
     ["3: changes apache_beam.DoFn.all", "4: changes apache_beam.DoFn.all"]),
    # An object that a call makes is the caller's, and a name in another function is another name
    (WORKER, "import apache_beam as beam\nx = beam.Map(len)\nx.a = 1\nx.b.update(c=2)", []),
    (WORKER, "import apache_beam as beam\ndef f():\n    x = beam.DoFn\n    return x\ndef g(x): x.a = 1", []),
    (WORKER, "import apache_beam as beam\nx = beam.DoFn\ndef f(x): x.a = 1\ndef g():\n    x = []\n    x[0] = 1", []),
    (WORKER, "import apache_beam as beam\nclass A:\n    x = beam.DoFn\n    def f(self): x.a = 1", []),
    (WORKER, "import apache_beam\nx = apache_beam.runners\nx.common()", ["3: uses apache_beam.runners.common"]),
    (FENCE, "from apache_beam.transforms import core\ncore._DoFnParam", []),
    (FENCE, "from apache_beam.transforms import core\ncore.x = 1", ["2: changes apache_beam.transforms.core.x"]),
    (FENCE, "from apache_beam.transforms import core\nx = core.DoFn\nx.a = 1",
     ["3: changes apache_beam.transforms.core.DoFn.a"]),
    (PATCHES[0], "from apache_beam.transforms import core\ncore.x = 1", []),
    ("rmqio.runners.options", "from apache_beam.portability import common_urns",
     ["1: imports apache_beam.portability.common_urns"]),
    ("rmqio.runners.beam.portable", "from apache_beam.portability import common_urns", []),
    ("rmqio.runners.options", "from rmqio.runners import beam", []),
    ("rmqio.sql.types", "from apache_beam import typehints\nfor n in 'ab': getattr(typehints, n)",
     ["2: getattr of typehints, by a name that is not a constant"]),
    (WORKER, "def f(x, name): return getattr(x, name)", []),
    (WORKER, "from rmqio.runners.spark.beam.private import operations\nclass D(operations.DoOperation): pass",
     ["2: extends operations.DoOperation"]),
    (WORKER, "from rmqio.runners.spark.beam.operations import DoOperation\nclass D(DoOperation): pass", []),
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
