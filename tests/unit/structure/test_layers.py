"""The layers (docs/architecture.md) restrict imports: also inside functions and under TYPE_CHECKING."""

from __future__ import annotations

import pytest

from docs.tools.draw import BESIDE, LAYERS
from tests.helpers.imports import Import, all_imports, imports_of, is_in, is_stdlib, sources

BASE = {
    f"rmqio.{name}"
    for name in (
        "addresses",
        "batches",
        "errors",
        "hints",
        "internal_errors",
        "loading",
        "logs",
        "model",
        "options",
        "interfaces",
        "repeats",
        "security",
        "start",
        "telemetry",
        "topics",
    )
}
SERDE = ("errors", "internal_errors", "loading", "model")
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
SQL_WITH_BEAM = {"rmqio.sql.runtime", "rmqio.sql.job", "rmqio.sql.transform", "rmqio.sql.lookup.sources"}
ENRICH_WITH_BEAM = {f"rmqio.enrich.{name}" for name in ("transform", "sources")}
ENRICH_FOR_SPARK = "rmqio.enrich.lookups"
SQL_FOR_RULES = ("rmqio.sql.conditions", "rmqio.sql.errors")
AUDIT_WITH_BEAM = {"rmqio.audit.transform"}
CONNECT_WITHOUT_BEAM = {
    f"rmqio.connect.{name}"
    for name in (
        "rows",
        "sink",
        "outage",
        "delivery",
        "sql.sink",
    )
}


def broken_rule(imported: Import) -> str | None:
    """The rule that an import breaks, in words; None when it may stand."""
    module = imported.module
    if imported.top == "pipelines" and not is_in(module, "pipelines"):
        return "nothing imports pipelines: they are programs"
    if is_in(module, "pipelines"):
        private = any(part.startswith("_") for part in imported.target.split(".")[1:])
        return "programs use what a user can" if private or imported.is_of("tests", "pipelines") else None
    if imported.top == "pyspark" and not is_in(module, "rmqio.pyspark", "rmqio.runners.spark"):
        return "pyspark only in rmqio/pyspark and rmqio/runners/spark"
    if imported.top == "prometheus_client" and not is_in(module, "rmqio.prometheus"):
        return "prometheus_client only in rmqio/prometheus"
    if is_in(module, "rmqio.prometheus") and not (
        is_stdlib(imported) or imported.top == "prometheus_client" or imported.is_of("rmqio.prometheus", *BASE)
    ):
        return "prometheus imports stdlib, base and its client library only: it works without Beam"
    if imported.top in ("socket", "socketserver", "ssl", "asyncio") and not is_in(
        module, "rmqio.client", "rmqio.local", "rmqio.serde.registry", "rmqio.runners"
    ):
        return "sockets only in client, local and the schema registry"
    if is_in(module, *BASE):
        return None if is_stdlib(imported) or imported.is_of(*BASE) else "base imports stdlib and base only"
    if is_in(module, "rmqio.wire"):
        if imported.top in OUTSIDE_WORLD:
            return "wire knows no sockets, threads, clock or processes"
        if is_stdlib(imported) or imported.top in ("lz4", "zstandard") or imported.is_of("rmqio.wire", *BASE):
            return None
        return "wire imports stdlib, base, lz4 and zstandard only"
    if is_in(module, "rmqio.serde"):
        if is_stdlib(imported) or imported.is_of("rmqio.serde", *(f"rmqio.{name}" for name in SERDE)):
            return None

        if imported.top == "fastavro" and is_in(module, "rmqio.serde.avro", "rmqio.serde.registry"):
            return None
        if imported.top == "jsonschema_rs" and is_in(module, "rmqio.serde.json"):
            return None
        if imported.top == "msgspec" and is_in(module, "rmqio.serde.json_msgspec", "rmqio.serde.json_objects"):
            return None
        if imported.top == "msgspec" and is_in(module, "rmqio.serde.strict_json") and imported.is_lazy:
            return None
        if imported.top == "requests" and is_in(module, "rmqio.serde.registry"):
            return None
        if imported.top == "apache_beam" and is_in(module, "rmqio.serde.avro.rows"):
            return None
        if imported.top == "pyarrow" and is_in(module, "rmqio.serde.avro.arrow", "rmqio.serde.avro.bulk_columns"):
            return None
        return "serde imports stdlib, errors, internal_errors, loading, model (avro fastavro, rows Beam, arrow pyarrow)"
    if is_in(module, "rmqio.sending"):
        if is_stdlib(imported) or imported.is_of("rmqio.sending", "rmqio.wire", *BASE):
            return None
        return "sending imports stdlib, base and wire only"
    if is_in(module, "rmqio.transforms") and imported.is_of("rmqio.client"):
        if imported.is_of("rmqio.client.factory") and imported.is_lazy:
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
    if is_in(module, "rmqio.command_line"):
        if is_stdlib(imported) or imported.is_of("rmqio.command_line", *BASE):
            return None
        if imported.is_of("rmqio.client") and (imported.is_lazy or imported.target == "rmqio.client.admin.Admin"):
            return None
        return "command_line imports stdlib and base, and the client in a function: all command lines stand on it"
    if imported.is_of("rmqio.cli") and not is_in(module, "rmqio.cli", "rmqio.__main__"):
        return "nothing imports cli: what several command lines need is in command_line"
    if is_in(module, "rmqio.cli", "rmqio.__main__"):
        ours = imported.is_of("rmqio.cli", "rmqio.command_line", "rmqio.client", "rmqio.__version__", *BASE)
        programs = (
            "rmqio.serde.avro",
            "rmqio.serde.registry",
            "rmqio.serde.strict_json",
            "rmqio.dead_letters",
            "rmqio.claims",
            "rmqio.local",
            "rmqio.sql",
            "rmqio.rules",
            "rmqio.audit",
            "rmqio.connect",
            "rmqio.watch",
        )
        if is_stdlib(imported) or ours or (imported.is_of(*programs) and imported.is_lazy):
            return None
        return "cli imports stdlib, base and client only (the rest in a function), so that help is there at once"
    if is_in(module, "rmqio.claims"):
        if imported.top == "apache_beam":
            known = is_in(module, "rmqio.claims.store") or imported.is_lazy
            return None if known else "of claims, only its store knows Beam at once: the command starts without it"
        ours = imported.is_of("rmqio.claims", "rmqio.command_line", *BASE)
        return None if is_stdlib(imported) or ours else "claims imports stdlib, base and command_line only"
    if imported.is_of("rmqio.skew") and not is_in(module, "rmqio.skew", "rmqio.runners.command_line"):
        return "nothing but the programs' command line imports skew: it stands on the others"
    if imported.is_of("rmqio.yaml") and not is_in(module, "rmqio.yaml"):
        return "nothing imports yaml: Beam YAML does"
    if imported.is_of("rmqio.sql") and not is_in(module, "rmqio.sql", "rmqio.yaml", "rmqio.rules"):
        return "nothing but the command line, Beam YAML and rules imports sql: it stands on the others"
    if imported.is_of("rmqio.rules") and not is_in(module, "rmqio.rules"):
        return "nothing but the command line imports rules: they stand on the others"
    if imported.is_of("rmqio.enrich") and not is_in(
        module, "rmqio.enrich", "rmqio.sql.lookup", "rmqio.pyspark.enriching"
    ):
        return "nothing but plain PySpark and the dimensions of sql imports enrich: it stands on the others"
    tops = ("rules", "enrich", "sql", "yaml", "audit", "connect", "skew")
    on_top = is_in(module, *(f"rmqio.{each}" for each in tops))
    if on_top and imported.is_of("rmqio.transforms") and not _is_public(imported, "rmqio.transforms.parts"):
        return "packages on top of the transforms import their public names and transforms.parts only"
    if is_in(module, "rmqio.rules") and imported.is_of("rmqio.sql") and not _is_public(imported, *SQL_FOR_RULES):
        return "rules take of SQL its conditions and its errors only"
    if is_in(module, "rmqio.yaml") and imported.is_of("rmqio.sql") and not _is_public(imported, "rmqio.sql.tables"):
        return "Beam YAML takes of SQL its tables only"
    if is_in(module, "rmqio.pyspark") and imported.is_of("rmqio.enrich") and not _is_public(imported, ENRICH_FOR_SPARK):
        return "the format for Spark takes of enrich its look-ups only"
    if imported.is_of("rmqio.audit") and not is_in(module, "rmqio.audit"):
        return "nothing but the command line imports audit: it stands on the others"
    if imported.is_of("rmqio.connect") and not is_in(module, "rmqio.connect", "rmqio.cli.main"):
        return "nothing but the command line imports connect: it stands on the others"
    if is_in(module, "rmqio.connect") and imported.is_of("rmqio.wire", "rmqio.sending", "rmqio.client"):
        return "connect sees topics through the transforms"
    if imported.top == "apache_beam" and is_in(module, *CONNECT_WITHOUT_BEAM):
        return "the base of sinks knows no Beam, so that a sink can be tested without it"
    if imported.is_of("rmqio.watch") and not is_in(module, "rmqio.watch"):
        return "nothing but the command line imports watch: it stands on the others"
    if is_in(module, "rmqio.watch"):
        if imported.top == "rich":
            return (
                None if is_in(module, "rmqio.watch.terminal") or imported.is_lazy else "rich only in watch's terminal"
            )
        ours = imported.is_of("rmqio.watch", "rmqio.command_line", "rmqio.client", "rmqio.prometheus", *BASE)
        return (
            None
            if is_stdlib(imported) or ours
            else "watch imports stdlib, base, command_line, client and prometheus only"
        )
    knows_beam = imported.top == "apache_beam" or imported.is_of("rmqio.transforms")
    if knows_beam and is_in(module, "rmqio.audit") and not is_in(module, *AUDIT_WITH_BEAM):
        return "of audit, only its transform knows Beam: the command runs without it"
    if knows_beam and is_in(module, "rmqio.enrich") and not is_in(module, *ENRICH_WITH_BEAM):
        return "of enrich, only its transform and its files know Beam: plain PySpark uses the rest"
    if is_in(module, "rmqio.rules", "rmqio.enrich", "rmqio.audit") and imported.is_of("rmqio.wire", "rmqio.sending"):
        return "rules, dimension tables and audits see topics through the transforms and a client's factory"
    if is_in(module, "rmqio.sql") and imported.is_of("rmqio.client", "rmqio.wire", "rmqio.sending"):
        if is_in(module, "rmqio.sql.shell") and imported.is_of("rmqio.client.factory") and imported.is_lazy:
            return None
        return "sql sees topics through the transforms, and its shell through a client's factory"
    if imported.top == "prompt_toolkit" and not is_in(module, "rmqio.sql.shell.terminal"):
        return "prompt_toolkit only in the shell's terminal"
    if imported.top == "apache_beam" and is_in(module, "rmqio.sql") and not is_in(module, *SQL_WITH_BEAM):
        return "of sql, only its runtime, its transform, its command and its files know Beam"
    if imported.top == "lark" and not is_in(module, "rmqio.sql.syntax"):
        return "lark only in the parser of SQL"
    if imported.is_of("rmqio.transforms") and is_in(module, "rmqio.pyspark"):
        return "the format for Spark knows no Beam, not even through the transforms"
    if imported.is_of("rmqio.serde.avro") and is_in(module, "rmqio.pyspark") and not imported.is_lazy:
        return "the format for Spark works without fastavro: it imports serde.avro in a function only"
    return None


def _is_public(imported: Import, *modules: str) -> bool:
    """Whether what is imported is a public class of its package, or from one of these modules."""
    return imported.is_of(*modules) or imported.target.split(".")[2][0].isupper()


def test_the_tree_is_really_read() -> None:
    modules = {module for module, _ in sources()}
    assert modules >= BASE
    assert {
        "rmqio",
        "rmqio.wire.command",
        "rmqio.sending.accumulator",
        "rmqio.transforms.read",
        "rmqio.cli.main",
        "rmqio.runners",
        "pipelines.province",
    } <= modules
    assert any(i.is_lazy and i.target == "rmqio.client.factory.RemotingClientFactory" for i in all_imports())


def test_imports_keep_the_layers() -> None:
    broken = [f"{i.where} imports {i.target}: {rule}" for i in all_imports() if (rule := broken_rule(i)) is not None]
    assert not broken, "\n" + "\n".join(broken)


def test_the_drawing_of_the_layers_has_all_packages_and_imports_lead_downwards() -> None:
    rows = {f"rmqio.{name}": at for at, row in enumerate(LAYERS) for _, name, _ in row}
    beside = {f"rmqio.{name}" for name in BESIDE}
    packages = {module for module, path in sources() if path.name == "__init__.py" and module.count(".") == 1}
    assert {*rows, *beside} == {each for each in packages if is_in(each, "rmqio")} - BASE
    rows |= dict.fromkeys(beside - {"rmqio.runners"}, rows["rmqio.transforms"])
    upwards = []
    for each in all_imports():
        package, other = (".".join(name.split(".")[:2]) for name in (each.module, each.target))
        if package != other and rows.get(package, -1) >= rows.get(other, len(LAYERS)):
            upwards.append(f"{each.where} imports {each.target}")
    assert not upwards, "\n" + "\n".join(upwards)


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
    ("rmqio.wire.command", "import lz4.frame", None),
    ("rmqio.wire.command", "import time", "no sockets"),
    ("rmqio.wire.command", "def f():\n    from threading import Lock", "no sockets"),
    ("rmqio.wire.command", "import importlib\nimportlib.import_module('asyncio')", "sockets"),
    ("rmqio.wire.command", "from apache_beam import coders", "wire imports"),
    ("rmqio.wire.command", "from .. import client", "wire imports"),
    ("rmqio.wire.command", "from . import properties", None),
    ("rmqio.serde.json", "import rmqio.options", "serde imports"),
    ("rmqio.serde.json", "import fastavro", "serde imports"),
    ("rmqio.serde.avro", "import fastavro", None),
    ("rmqio.serde.json", "import msgspec", "serde imports"),
    ("rmqio.serde.json_msgspec", "import msgspec", None),
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
    ("rmqio.transforms.read", "def f():\n    from rmqio.client.session import X", "transforms see"),
    ("rmqio.transforms.read", "from rmqio import client", "transforms see"),
    ("rmqio.transforms.write", "from rmqio.topics import f", None),
    ("rmqio.transforms.write", "from rmqio.testing import InMemoryCluster", "doubles"),
    ("rmqio.transforms.write", "import pyspark.sql", "pyspark only"),
    ("rmqio.sending.accumulator", "import threading\nfrom rmqio.topics import f", None),
    ("rmqio.sending.accumulator", "from rmqio.client.factory import X", "sending imports"),
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
    ("rmqio.transforms.read", "from pipelines import province", "nothing imports pipelines"),
    ("pipelines.province", "from pipelines import word_count", "what a user can"),
    ("pipelines.province", "from rmqio.rules.transform import _AlertsFn", "what a user can"),
    ("rmqio.sql.planning.plan", "import apache_beam", "only its runtime"),
    ("rmqio.sql.runtime.joins", "import apache_beam", None),
    ("rmqio.sql.runtime.translation", "from rmqio.transforms import ReadFromRocketMQ", None),
    ("rmqio.sql.runtime.translation", "from rmqio.sending.batches import FailedMessage", "sql sees topics"),
    ("rmqio.transforms.read", "from rmqio.sql import types", "nothing but the command line"),
    ("rmqio.yaml.read", "from rmqio.sql.tables import declared", None),
    ("rmqio.yaml.read", "from rmqio.sql.transform.inputs import declared", "its tables only"),
    ("rmqio.rules.where", "from rmqio.sql.conditions import types", None),
    ("rmqio.rules.where", "from rmqio.sql import types", "its conditions"),
    ("rmqio.enrich.transform", "from rmqio.transforms.parts import Count", None),
    ("rmqio.enrich.transform", "from rmqio.transforms import ReadFailure", None),
    ("rmqio.pyspark.enriching", "from rmqio.enrich.lookups import Spec", None),
    ("rmqio.pyspark.enriching", "from rmqio.enrich.table.rows import Spec", "look-ups only"),
    ("rmqio.enrich.transform", "from rmqio.transforms.metrics import Count", "transforms.parts"),
    ("rmqio.sql.runtime.outputs", "from rmqio.transforms import metrics", "transforms.parts"),
    ("rmqio.sql.planning.plan", "from rmqio.rules import ir", "imports rules"),
    ("rmqio.transforms.read", "from rmqio.enrich import table", "imports enrich"),
    ("rmqio.sql.lookup.sources", "from rmqio.enrich import table", None),
    ("rmqio.enrich.store", "import apache_beam", "know Beam"),
    ("rmqio.enrich.transform", "import apache_beam", None),
    ("rmqio.enrich.topic", "from rmqio.wire import frame", "see topics through"),
    ("rmqio.transforms.read", "from rmqio.audit import sketch", "imports audit"),
    ("rmqio.audit.checking", "import apache_beam", "only its transform"),
    ("rmqio.audit.transform", "import apache_beam", None),
    ("rmqio.audit.reading", "from rmqio.wire import frame", "see topics through"),
    ("rmqio.transforms.read", "from rmqio.connect import WriteToSql", "imports connect"),
    ("pipelines.province", "from rmqio.connect import WriteToSql", None),
    ("rmqio.connect.delivery", "import apache_beam", "knows no Beam"),
    ("rmqio.connect.transform", "import apache_beam", None),
    ("rmqio.connect.sql.sink", "from rmqio.wire import frame", "connect sees topics"),
    ("rmqio.watch.watcher", "from rmqio.command_line.cluster import queues_of\nimport threading", None),
    ("rmqio.watch.watcher", "import rich", "rich only"),
    ("rmqio.watch.terminal", "from rich.live import Live", None),
    ("rmqio.watch.frames", "import apache_beam", "watch imports"),
    ("rmqio.sql.command", "from rmqio.watch import frames", "imports watch"),
    ("rmqio.transforms.read", "from rmqio.yaml import read", "nothing imports yaml"),
    ("rmqio.sql.planning.plan", "import lark", "lark only"),
    ("rmqio.topics", "from rmqio.client.routes import Routes", "base imports"),
    ("rmqio.client.session", "import threading, socket", None),
    ("rmqio.client.session", "import apache_beam", "no Beam"),
    ("rmqio.cli.topics", "from rmqio.client.admin import Admin\nimport json", None),
    ("rmqio.cli.printing", "def f():\n    from rmqio.serde.avro import AvroDeserializer", None),
    ("rmqio.cli.printing", "from rmqio.serde.avro import AvroDeserializer", "cli imports"),
    ("rmqio.cli.main", "def f():\n    from rmqio.local import __main__", None),
    ("rmqio.cli.main", "from rmqio.local import __main__", "cli imports"),
    ("rmqio.rules.command.run", "from rmqio.cli.main import main", "nothing imports cli"),
    ("rmqio.rules.command.run", "from rmqio.command_line.output import note", None),
    ("rmqio.command_line.cluster", "from rmqio.client.client import RemotingQueueClient", "command_line imports"),
    ("rmqio.command_line.cluster", "def f():\n    from rmqio.client.client import RemotingQueueClient", None),
    ("rmqio.command_line.output", "from rmqio.cli import main", "command_line imports"),
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
    module = [i.target for i in imports_of(source, "rmqio.wire.command", "x")]
    package = [i.target for i in imports_of(source, "rmqio.wire", "x", is_package=True)]
    assert module == package == ["rmqio.wire.a", "rmqio.wire.b.c", "rmqio.d.e"]
