"""Which tests a change is about: those that are new or do something else since what landed last."""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.gate.report import git

BASE: Final = "RMQIO_BASE"
"""A variable of the environment: a commit to compare with instead."""
_MAIN: Final = "origin/main"
_FUNCTION: Final = ast.FunctionDef | ast.AsyncFunctionDef


def changed_tests(root: Path) -> list[str]:
    """Returns pytest's ids, without parameters, of tests whose body, with its decorators and with what it uses of its
    file (tables, fixtures, functions, classes), is that of no test of the other commit. A renamed or moved test is not
    there; nothing is, if there is no parent, as in a shallow clone. Raises `ValueError` for a `RMQIO_BASE` that is no
    commit."""
    base = base_of(root)
    if base is None:
        return []
    names = git(root, "diff", "--name-only", "--no-renames", base, "HEAD", "--", "tests") or ""
    files = [name for name in names.splitlines() if Path(name).name.startswith("test_") and name.endswith(".py")]
    before = defaultdict(list)
    for name in files:
        for _, body, used in _tests(git(root, "show", f"{base}:{name}") or ""):
            before[body].append(used)
    return [
        f"{name}::{test}"
        for name in files
        for test, body, used in _tests(git(root, "show", f"HEAD:{name}") or "")
        if not any(_is_same(then, used) for then in before[body])
    ]


def _is_same(then: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether nothing is other that both files have: what a file imports is not looked at."""
    return all(then.get(name, each) == each for name, each in now.items())


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


def _tests(text: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yields each test function of a file, as `Class::name`, what it does, and what it uses of the file, by name."""
    try:
        nodes = ast.parse(text).body
    except SyntaxError:
        return  # pytest says so, of the commit that is tested
    known = {name: node for node in nodes for name in _named(node)}
    for node in nodes:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for each in inner:
            if isinstance(each, _FUNCTION) and each.name.startswith("test_"):
                name = f"{node.name}::{each.name}" if isinstance(node, ast.ClassDef) else each.name
                used = {of: ast.dump(known[of]) for of in _used(each, known)}
                yield name, "".join(map(ast.dump, [*each.decorator_list, *each.body])), used


def _named(node: ast.stmt) -> list[str]:
    """Returns what a statement of a file gives names to."""
    if isinstance(node, ast.ClassDef | _FUNCTION):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _used(node: ast.AST, known: Mapping[str, ast.AST]) -> set[str]:
    """Returns the names that are used there, of variables and fixtures, and where these are defined."""
    found: set[str] = set()
    left = [node]
    while left:
        for each in ast.walk(left.pop()):
            name = each.id if isinstance(each, ast.Name) else each.arg if isinstance(each, ast.arg) else ""
            if name in known and name not in found:
                found.add(name)
                left.append(known[name])
    return found
