"""Reads the imports of every file of the packages."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("rmqio", "pyspark_rocketmq", "pipelines")
_IMPORT_CALLS = ("import_module", "__import__")


@dataclass(frozen=True)
class Import:
    """The target of one import statement, as an absolute name."""

    module: str
    """The place in the source."""
    target: str
    where: str
    is_lazy: bool
    """Whether it is inside a function."""

    @property
    def top(self) -> str:
        return self.target.partition(".")[0]

    def is_of(self, *packages: str) -> bool:
        return any(self.target == package or self.target.startswith(f"{package}.") for package in packages)


def imports_of(source: str, module: str, where: str, *, is_package: bool = False) -> list[Import]:
    """Returns every import of a source. `from a import b` counts as `a.b` if `a` is ours, since `b` may be a module."""
    found: list[Import] = []
    has_calls = any(name in source for name in _IMPORT_CALLS)

    def visit(node: ast.AST, is_lazy: bool) -> None:
        is_lazy = is_lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            targets = targets_of(node, module, is_package=is_package)
        elif isinstance(node, ast.Call) and _is_import_call(node):
            targets = [node.args[0].value] if isinstance(node.args[0], ast.Constant) else []  # type: ignore[list-item]
        else:
            targets = []
        found.extend(Import(module, target, f"{where}:{node.lineno}", is_lazy) for target in targets)  # type: ignore[attr-defined]
        for child in ast.iter_child_nodes(node) if has_calls else _statements_in(node):
            visit(child, is_lazy)

    visit(ast.parse(source), False)
    return found


def _statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what can hold import statements: a seventh of the nodes."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        children = getattr(node, field, None)
        yield from children if isinstance(children, list) else ()


def targets_of(node: ast.ImportFrom, module: str, *, is_package: bool = False) -> list[str]:
    """Returns the absolute name of each thing that a statement of a module imports."""
    parts = module.split(".")
    base = parts[: len(parts) - node.level + is_package] if node.level else []
    origin = ".".join([*base, *([node.module] if node.module else [])])
    return [f"{origin}.{alias.name}" for alias in node.names]


def _is_import_call(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _IMPORT_CALLS and bool(node.args)


def sources() -> Iterator[tuple[str, Path]]:
    """Yields the names of modules, and their files."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), path


@functools.cache
def all_imports() -> list[Import]:
    """Returns every import of the project. Takes seconds: call it in a test, not while tests are collected."""
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
