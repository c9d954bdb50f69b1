"""Who may import whom (docs/architecture.md), kept by reading the imports of every file: also those inside functions
and under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import rmqio

ROOT = Path(__file__).resolve().parents[2]
# Folders are installed under these names (pyproject.toml, package-dir).
PACKAGES = {"rmqio": "rmqio", "runners": "rmqio.runners", "pipelines": "rmqio.pipelines", "schemas": "rmqio.schemas"}
PACKAGES["pyspark_rocketmq"] = "pyspark_rocketmq"
BASE = {
    f"rmqio.{name}"
    for name in (
        "addresses",
        "attempts",
        "command_line",
        "errors",
        "logs",
        "look_back",
        "lookups",
        "model",
        "options",
        "interfaces",
        "security",
        "start",
        "subscription",
        "telemetry",
        "topics_needed",
    )
}
OUTSIDE_WORLD = {
    "socket",
    "threading",
    "time",
    "asyncio",
    "select",
    "selectors",
    "subprocess",
    "ssl",
    "multiprocessing",
}
# Pure: it sees no client, and transforms and doubles share it with the client.
PURE_CLIENT = {"rmqio.client.selection"}


@dataclass(frozen=True)
class Import:
    """One import statement's target, absolute."""

    module: str
    """Where it is written."""
    target: str
    where: str
    is_lazy: bool
    """Inside of a function."""

    @property
    def top(self) -> str:
        return self.target.partition(".")[0]

    def is_of(self, *packages: str) -> bool:
        return any(self.target == package or self.target.startswith(f"{package}.") for package in packages)


def imports_of(source: str, module: str, where: str, *, is_package: bool = False) -> list[Import]:
    """Every import of a source. `from a import b` counts as `a.b` where `a` is ours, since `b` may be a module."""
    found: list[Import] = []

    def visit(node: ast.AST, is_lazy: bool) -> None:
        is_lazy = is_lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            base = parts[: len(parts) - node.level + is_package] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            targets = [f"{origin}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and _is_import_call(node):
            targets = [node.args[0].value] if isinstance(node.args[0], ast.Constant) else []  # type: ignore[list-item]
        else:
            targets = []
        found.extend(Import(module, target, f"{where}:{node.lineno}", is_lazy) for target in targets)  # type: ignore[attr-defined]
        for child in ast.iter_child_nodes(node):
            visit(child, is_lazy)

    visit(ast.parse(source), False)
    return found


def _is_import_call(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in ("import_module", "__import__") and bool(node.args)


def sources() -> Iterator[tuple[str, Path]]:
    """Module names as installed, and their files."""
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


def all_imports() -> list[Import]:
    return [
        imported
        for module, path in sources()
        for imported in imports_of(
            path.read_text(), module, str(path.relative_to(ROOT)), is_package=path.name == "__init__.py"
        )
    ]


def is_stdlib(imported: Import) -> bool:
    return imported.top in sys.stdlib_module_names


def is_in(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def broken_rule(imported: Import) -> str | None:
    """The rule that an import breaks, in words; None when it may stand."""
    module = imported.module
    if imported.is_of("rmqio.pipelines") and not is_in(module, "rmqio.pipelines"):
        return "nothing imports pipelines"
    if imported.top == "pyspark" and not is_in(module, "rmqio.pyspark", "rmqio.runners.spark"):
        return "pyspark only in rmqio/pyspark and runners/spark"
    if imported.top == "prometheus_client" and module != "rmqio.prometheus":
        return "prometheus_client only in rmqio/prometheus.py"
    if is_in(module, "rmqio.prometheus") and not (
        is_stdlib(imported) or imported.top == "prometheus_client" or imported.is_of(*BASE)
    ):
        return "prometheus imports stdlib, base and its client library only: it works without Beam"
    if imported.top in ("socket", "socketserver", "ssl", "asyncio") and not is_in(
        module, "rmqio.client", "rmqio.local", "rmqio.testing", "rmqio.serde.registry", "rmqio.runners"
    ):
        return "sockets only in client, local, testing and the schema registry"
    if is_in(module, *BASE):
        return None if is_stdlib(imported) or imported.is_of(*BASE) else "base imports stdlib and base only"
    if is_in(module, "rmqio.wire", *PURE_CLIENT):
        if imported.top in OUTSIDE_WORLD:
            return "wire knows no sockets, threads, clock or processes"
        if is_stdlib(imported) or imported.top in ("lz4", "zstandard") or imported.is_of("rmqio.wire", *BASE):
            return None
        return "wire imports stdlib, base, lz4 and zstandard only"
    if is_in(module, "rmqio.serde"):
        if is_stdlib(imported) or imported.is_of("rmqio.serde", "rmqio.errors", "rmqio.model"):
            return None

        if imported.top == "fastavro" and is_in(module, "rmqio.serde.avro", "rmqio.serde.registry"):
            return None
        if imported.top == "jsonschema_rs" and is_in(module, "rmqio.serde.json_schema"):
            return None
        if imported.top == "requests" and is_in(module, "rmqio.serde.registry"):
            return None
        if imported.top == "apache_beam" and is_in(module, "rmqio.serde.avro.rows"):
            return None
        if imported.top == "pyarrow" and is_in(module, "rmqio.serde.avro.arrow"):
            return None
        return "serde imports stdlib, rmqio.errors and rmqio.model only (avro also fastavro, rows Beam, arrow pyarrow)"
    if is_in(module, "rmqio.sending"):
        if is_stdlib(imported) or imported.is_of("rmqio.sending", "rmqio.wire", *BASE, *PURE_CLIENT):
            return None
        return "sending imports stdlib, base, wire and the client's pure modules only"
    if is_in(module, "rmqio.transforms") and imported.is_of("rmqio.client"):
        if imported.is_of(*PURE_CLIENT) or (imported.is_of("rmqio.client.factory") and imported.is_lazy):
            return None
        return "transforms see the client through interfaces, and its default factory in a function only"
    if is_in(module, "rmqio.transforms", "rmqio.client") and imported.is_of("rmqio.testing"):
        return "what ships for production does not import its doubles"
    if is_in(module, "rmqio.runners") and imported.is_of(
        "rmqio.transforms", "rmqio.sending", "rmqio.client", "rmqio.wire"
    ):
        return "runners run any pipeline: they never import rmqio's transforms"
    without_beam = ("rmqio.client", "rmqio.testing", "rmqio.pyspark", "rmqio.librocketmq")
    if imported.top == "apache_beam" and is_in(module, *without_beam):
        return "client, testing, librocketmq and the format for Spark know no Beam"
    if is_in(module, "rmqio.cli", "rmqio.__main__"):
        ours = imported.is_of("rmqio.cli", "rmqio.client", "rmqio.__version__", *BASE)
        if is_stdlib(imported) or ours or (imported.is_of("rmqio.serde.avro") and imported.is_lazy):
            return None
        return "cli imports stdlib, base and client only (serde.avro in a function), so that help is there at once"
    if imported.is_of("rmqio.transforms") and is_in(module, "rmqio.pyspark"):
        return "the format for Spark knows no Beam, not even through the transforms"
    if imported.is_of("rmqio.serde.avro") and is_in(module, "rmqio.pyspark") and not imported.is_lazy:
        return "the format for Spark works without fastavro: it imports serde.avro in a function only"
    return None


IMPORTS = all_imports()


def test_the_tree_is_really_read() -> None:
    modules = {module for module, _ in sources()}
    assert modules >= BASE
    assert {
        "rmqio",
        "rmqio.wire.frame",
        "rmqio.sending.routes",
        "rmqio.transforms.read",
        "rmqio.cli.main",
        "rmqio.runners",
        "rmqio.pipelines",
    } <= modules
    assert any(i.is_lazy and i.target == "rmqio.client.factory.RemotingClientFactory" for i in IMPORTS)


def test_imports_keep_the_layers() -> None:
    broken = [f"{i.where} imports {i.target}: {rule}" for i in IMPORTS if (rule := broken_rule(i)) is not None]
    assert not broken, "\n" + "\n".join(broken)


# module, source, part of the rule that it breaks (None: it may stand)
SYNTHETIC: list[tuple[str, str, str | None]] = [
    ("rmqio.errors", "import json", None),
    ("rmqio.model", "from rmqio.errors import LocalError", None),
    ("rmqio.model", "from rmqio import errors", None),
    ("rmqio.options", "import lz4", "base imports"),
    ("rmqio.telemetry", "import apache_beam", "base imports"),
    ("rmqio.telemetry", "def f():\n    import prometheus_client", "prometheus_client only"),
    ("rmqio.prometheus", "import prometheus_client", None),
    ("rmqio.transforms.metrics", "import prometheus_client", "prometheus_client only"),
    ("rmqio.interfaces", "from rmqio.wire.command import Command", "base imports"),
    ("rmqio.start", "def f():\n    import apache_beam", "base imports"),
    ("rmqio.start", "if TYPE_CHECKING:\n    from rmqio.client import client", "base imports"),
    ("rmqio.wire.frame", "import lz4.frame", None),
    ("rmqio.wire.frame", "import time", "no sockets"),
    ("rmqio.wire.frame", "def f():\n    from threading import Lock", "no sockets"),
    ("rmqio.wire.frame", "import importlib\nimportlib.import_module('asyncio')", "sockets"),
    ("rmqio.wire.frame", "from apache_beam import coders", "wire imports"),
    ("rmqio.wire.frame", "from .. import client", "wire imports"),
    ("rmqio.wire.frame", "from . import codes", None),
    ("rmqio.serde.json", "import rmqio.options", "serde imports"),
    ("rmqio.serde.json", "import fastavro", "serde imports"),
    ("rmqio.serde.avro", "import fastavro", None),
    ("rmqio.serde.avro.rows", "import apache_beam", None),
    ("rmqio.serde.avro.typed", "import apache_beam", "serde imports"),
    ("rmqio.serde.avro.arrow", "import pyarrow", None),
    ("rmqio.serde.avro.typed", "import pyarrow", "serde imports"),
    ("rmqio.serde.registry.rest", "import requests", None),
    ("rmqio.serde.avro.schema", "import requests", "serde imports"),
    ("rmqio.serde.json", "import socket", "sockets only"),
    ("rmqio.transforms.read", "import socket", "sockets only"),
    ("rmqio.transforms.read", "from rmqio.client.factory import X", "transforms see"),
    ("rmqio.transforms.read", "def f():\n    from rmqio.client.factory import X", None),
    ("rmqio.transforms.read", "def f():\n    from rmqio.client.connections.session import X", "transforms see"),
    ("rmqio.transforms.read", "from rmqio import client", "transforms see"),
    ("rmqio.transforms.write", "from rmqio.client.selection import f", None),
    ("rmqio.transforms.write", "from rmqio.testing import FakeBroker", "doubles"),
    ("rmqio.transforms.write", "import pyspark.sql", "pyspark only"),
    ("rmqio.sending.routes", "import threading\nfrom rmqio.client.selection import f", None),
    ("rmqio.sending.routes", "from rmqio.client.factory import X", "sending imports"),
    ("rmqio.sending.batches", "from rmqio.transforms.writing.outputs import WriteOutputs", "sending imports"),
    ("rmqio.sending.batches", "import apache_beam", "sending imports"),
    ("rmqio.sending.batches", "import pyspark", "pyspark only"),
    ("rmqio.transforms.write", "from rmqio.sending.batches import Batch", None),
    ("rmqio.runners.options", "import rmqio.sending", "runners run any"),
    ("rmqio.pyspark.reader", "import pyspark.sql", None),
    ("rmqio.pyspark.sink", "from rmqio.sending.batches import Batch", None),
    ("rmqio.runners.spark.runner", "from pyspark import sql", None),
    ("rmqio.runners.options", "import pyspark", "pyspark only"),
    ("rmqio.runners.options", "import rmqio.transforms.read", "runners run any"),
    ("rmqio.runners.options", "def f():\n    from rmqio import transforms", "runners run any"),
    ("rmqio.transforms.read", "from rmqio.pipelines import province", "nothing imports pipelines"),
    ("rmqio.pipelines.province", "from rmqio.pipelines import arguments", None),
    ("rmqio.client.selection", "import threading", "no sockets"),
    ("rmqio.client.connections.session", "import threading, socket", None),
    ("rmqio.client.connections.session", "import apache_beam", "no Beam"),
    ("rmqio.cli.topics", "from rmqio.client.admin import Admin\nimport json", None),
    ("rmqio.cli.bodies", "def f():\n    from rmqio.serde.avro import AvroDeserializer", None),
    ("rmqio.cli.bodies", "from rmqio.serde.avro import AvroDeserializer", "cli imports"),
    ("rmqio.cli.topics", "from rmqio.transforms import read", "cli imports"),
    ("rmqio.cli.topics", "import apache_beam", "cli imports"),
    ("rmqio.pyspark.reader", "import apache_beam", "no Beam"),
    ("rmqio.pyspark.reader", "from rmqio.transforms.shared import shared_client", "no Beam"),
    ("rmqio.pyspark.reader", "from rmqio.client.factory import RemotingClientFactory", None),
    ("rmqio.pyspark.reader", "from rmqio.serde.avro.arrow import AvroToArrow", "without fastavro"),
    ("rmqio.pyspark.reader", "def f():\n    from rmqio.serde.avro.arrow import AvroToArrow", None),
]


@pytest.mark.parametrize(("module", "source", "expected"), SYNTHETIC)
def test_the_rules_catch_what_they_should_and_no_more(module: str, source: str, expected: str | None) -> None:
    rules = [rule for i in imports_of(source, module, "x.py") if (rule := broken_rule(i)) is not None]
    assert [expected is not None and expected in rule for rule in rules] == [True] * (expected is not None)


def test_relative_imports_are_resolved_from_a_package_and_from_a_module() -> None:
    source = "from . import a\nfrom .b import c\nfrom ..d import e"
    module = [i.target for i in imports_of(source, "rmqio.wire.frame", "x")]
    package = [i.target for i in imports_of(source, "rmqio.wire", "x", is_package=True)]
    assert module == package == ["rmqio.wire.a", "rmqio.wire.b.c", "rmqio.d.e"]


# ---- the public face ------------------------------------------------------------------------------------------------


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.strip()


@pytest.mark.parametrize(
    "module",
    [
        "rmqio",
        "rmqio.wire.frame",
        "rmqio.testing",
        "rmqio.serde",
        "rmqio.sending.accumulator",
        "rmqio.dead_letters",
        "rmqio.dead_letters.command",
    ],
)
def test_importing_it_pulls_in_neither_beam_nor_spark(module: str) -> None:
    program = f"import sys, {module}; print(*sorted({{'apache_beam', 'pyspark', 'grpc'}} & set(sys.modules)))"
    assert run(program) == ""


def test_a_light_public_name_does_not_pull_in_beam_and_a_transform_does() -> None:
    assert run("import sys, rmqio; rmqio.Message, rmqio.StartFrom; print('apache_beam' in sys.modules)") == "False"
    assert run("import sys, rmqio; rmqio.ReadFromRocketMQ; print('apache_beam' in sys.modules)") == "True"


FIXED_NAMES = [
    "ReadFromRocketMQ", "ReadAllFromRocketMQ", "WriteToRocketMQ", "WriteToRocketMQResult", "StartFrom", "StopAt",
    "Message", "Record", "MessageQueue", "ReadOptions", "WriteOptions",
]  # fmt: skip


@pytest.mark.parametrize("name", FIXED_NAMES)
def test_a_fixed_name_is_public_and_has_a_docstring(name: str) -> None:
    assert name in rmqio.__all__
    assert getattr(rmqio, name).__doc__


def test_every_public_name_resolves_and_is_listed() -> None:
    for name in rmqio.__all__:
        assert getattr(rmqio, name) is not None
    assert set(rmqio.__all__) <= set(dir(rmqio))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'ReadFromKafka'"):
        rmqio.ReadFromKafka  # noqa: B018


@pytest.mark.parametrize(
    ("cls", "methods"),
    [
        ("StartFrom", "earliest latest timestamp group_offsets specific_offsets"),
        ("StopAt", "latest timestamp offsets"),
    ],
)
def test_strategies_have_their_fixed_names(cls: str, methods: str) -> None:
    assert all(callable(getattr(getattr(rmqio, cls), name)) for name in methods.split())


def test_every_folder_with_modules_is_packaged() -> None:
    """setuptools is given a list, since folders are installed under other names: what is not in it is in no wheel."""
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {module if path.name == "__init__.py" else module.rpartition(".")[0] for module, path in sources()}
    assert folders - {"rmqio.runners.spark.site"} == listed


# Two that are one thing in two files: a call waits on its session, and letters of a write are written by a write.
KNOWN_CIRCLES = {
    frozenset({"rmqio.client.connections.call", "rmqio.client.connections.session"}),
    frozenset({"rmqio.transforms.write", "rmqio.transforms.write_dead_letters"}),
}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and under TYPE_CHECKING count: who reads one file must not need all of them."""
    modules = {module for module, path in sources() if path.name != "__init__.py"}
    imported: dict[str, set[str]] = {module: set() for module in modules}
    for each in IMPORTS:
        parts = each.target.split(".")
        names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        found = next((name for name in names if name in modules), None)
        if each.module in modules and found is not None and found != each.module:
            imported[each.module].add(found)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            for module in imported[left.pop()] - seen:
                seen.add(module)
                left.append(module)
        return seen

    reaches = {module: reached(module) for module in modules}
    circles = {
        frozenset(other for other in reaches[module] if module in reaches[other])
        for module in modules
        if module in reaches[module]
    }
    assert circles == KNOWN_CIRCLES
