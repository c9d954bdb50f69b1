"""Which tests a change is about: those that are new or do something else since what landed last."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.gate.report import git

BASE: Final = "RMQIO_BASE"
"""A variable of the environment: a commit to compare with instead."""
_MAIN: Final = "origin/main"


def changed_tests(root: Path) -> list[str]:
    """Returns pytest's ids, without parameters, of tests whose body, with its decorators and the tables that they name,
    is that of no test of the other commit. A renamed or moved test is not there; nothing is, if there is no parent, as
    in a shallow clone. Raises `ValueError` for a `RMQIO_BASE` that is no commit."""
    base = base_of(root)
    if base is None:
        return []
    names = git(root, "diff", "--name-only", "--no-renames", base, "HEAD", "--", "tests") or ""
    files = [name for name in names.splitlines() if Path(name).name.startswith("test_") and name.endswith(".py")]
    before = {body for name in files for _, body in _bodies(git(root, "show", f"{base}:{name}") or "")}
    now = ((name, git(root, "show", f"HEAD:{name}") or "") for name in files)
    return [f"{name}::{test}" for name, text in now for test, body in _bodies(text) if body not in before]


def base_of(root: Path) -> str | None:
    """Returns the id of the commit to compare with, or None if there is none. Raises `ValueError` as above."""
    given = os.environ.get(BASE)
    found = git(root, "rev-parse", "--verify", "--quiet", f"{given or _landed(root)}^{{commit}}")
    if given and found is None:
        raise ValueError(f"{BASE}={given} is no commit")
    return found and found.strip()


def _landed(root: Path) -> str:
    """A delivery has many commits. Without what it comes after, only the last one is known."""
    has_base = git(root, "merge-base", "--is-ancestor", _MAIN, "HEAD") is not None
    return _MAIN if has_base and git(root, "rev-list", "-1", f"{_MAIN}..HEAD") else "HEAD^1"


def _bodies(text: str) -> Iterator[tuple[str, str]]:
    """Yields each test function of a file, as `Class::name`, and what it does."""
    try:
        nodes = ast.parse(text).body
    except SyntaxError:
        return  # pytest says so, of the commit that is tested
    tables = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for each in inner:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                name = f"{node.name}::{each.name}" if isinstance(node, ast.ClassDef) else each.name
                marks = each.decorator_list
                yield name, "".join(map(ast.dump, [*marks, *each.body, *_tables(marks, tables)]))


def _tables(nodes: Iterable[ast.expr], known: Mapping[str, ast.expr]) -> list[ast.expr]:
    """Returns the tables that are named there, and those that these name."""
    names = sorted({of.id for node in nodes for of in ast.walk(node) if isinstance(of, ast.Name)} & known.keys())
    found = [known[name] for name in names]
    others = {name: node for name, node in known.items() if name not in names}
    return [*found, *_tables(found, others)] if found else []
