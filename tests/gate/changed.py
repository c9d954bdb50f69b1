"""Which tests a change is about: those that are new or do something else since what landed last.

What a test does is its function and, by name, what that uses of its own file, also by what it uses. Other files are not
looked at, not even a `conftest.py`. In doubt, a test has changed: that costs a run, and finer rules cost code.
"""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, TypeGuard

from tests.gate.report import git

BASE: Final = "RMQIO_BASE"
"""A variable of the environment: a commit to compare with instead."""
_MAIN: Final = "origin/main"
_OF_ALL: Final = ("pytestmark", "pytest_generate_tests", "setup_", "teardown_")
"""How names begin that pytest uses for all tests of a file."""
_FUNCTION: Final = ast.FunctionDef | ast.AsyncFunctionDef


class _Test(NamedTuple):
    """`own`: its function, but for its name, its class without other tests, and what all tests of the file have.

    `used`: what these use of the file, by name.
    """

    own: str
    used: Mapping[str, str]


def changed_tests(root: Path) -> list[str]:
    """Returns pytest's ids, without parameters, of tests that do something else than each test of the other commit.

    A renamed or moved test is not there, not even if what it used is imported now; nothing is, if there is no parent,
    as in a shallow clone. Raises `ValueError` for a `RMQIO_BASE` that is no commit.
    """
    base = base_of(root)
    if base is None:
        return []
    names = git(root, "diff", "-z", "--name-only", "--no-renames", base, "HEAD", "--", "tests") or ""
    files = sorted(name for name in names.split("\0") if PurePosixPath(name).match("test_*.py"))
    before: dict[str, dict[str, Mapping[str, str]]] = defaultdict(dict)
    for test, (own, used) in _tests(root, base, files):
        before[own][test] = used

    def is_there(test: str, now: _Test) -> bool:
        alike = before[now.own]
        others = [alike[test]] if test in alike else alike.values()  # it was there, or may have another name now
        return any(now.used.items() <= used.items() for used in others)

    return [test for test, now in _tests(root, "HEAD", files) if not is_there(test, now)]


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


def _tests(root: Path, commit: str, files: Iterable[str]) -> Iterator[tuple[str, _Test]]:
    for name in files:
        try:
            nodes = ast.parse(git(root, "show", f"{commit}:{name}") or "").body
        except (SyntaxError, ValueError):  # pytest says so, of the commit that is tested
            continue
        file = _File(nodes)
        yield from ((f"{name}::{test}", each) for test, each in file.tests(nodes, file.of_all))


class _File:
    """What a file has that its tests use."""

    def __init__(self, nodes: Iterable[ast.stmt]) -> None:
        given: dict[str, list[ast.stmt]] = defaultdict(list)
        for node in nodes:
            for name in _given(node):
                given[name].append(node)
        self._texts = {name: "".join(map(ast.dump, of)) for name, of in given.items()}
        self._names = {name: _mentioned(of) for name, of in given.items()}
        self.of_all = [*filter(_is_of_all, nodes)]

    def tests(self, nodes: Iterable[ast.stmt], around: Iterable[ast.AST]) -> Iterator[tuple[str, _Test]]:
        """Yields the tests among these statements, by their names in the file. `around`: what each of them has."""
        for node in nodes:
            if _is_test(node):
                name, node.name = node.name, ""
                own = [node, *around]
                yield name, _Test("".join(map(ast.dump, own)), self._used(_mentioned(own)))
            elif isinstance(node, ast.ClassDef):
                others = [each for each in node.body if not _is_test(each)]
                of_class = [*around, *node.decorator_list, *node.bases, *others]
                yield from ((f"{node.name}::{name}", test) for name, test in self.tests(node.body, of_class))

    def _used(self, names: set[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        while names := (names & self._texts.keys()) - found.keys():
            found |= {name: self._texts[name] for name in names}
            names = set().union(*(self._names[name] for name in names))
        return found


def _is_test(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, _FUNCTION) and node.name.startswith("test_")


def _is_of_all(node: ast.stmt) -> bool:
    decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
    return any("autouse" in each for each in decorators) or any(name.startswith(_OF_ALL) for name in _given(node))


def _given(node: ast.stmt) -> set[str]:
    """Returns the names that a statement gives, and those of what it may change, such as `ROWS.append(1)`."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            keywords = [each for call in node.decorator_list for each in getattr(call, "keywords", ())]
            return {node.name, *_mentioned(each.value for each in keywords if each.arg == "name")}
        case ast.ClassDef():
            return {node.name}
        case ast.Assign(targets=targets):
            return _mentioned(targets)
        case ast.AnnAssign(target=target):
            return _mentioned([target])
    definitions = (each.name for each in ast.walk(node) if isinstance(each, _FUNCTION | ast.ClassDef))
    return {*_mentioned([node]), *definitions}


def _mentioned(nodes: Iterable[ast.AST]) -> set[str]:
    """Returns all that may be a name there: also arguments, and texts, which may name fixtures."""
    found = set()
    for node in nodes:
        for each in ast.walk(node):
            match each:
                case ast.Name(id=str(name)) | ast.arg(arg=name) | ast.Constant(value=str(name)):
                    found.add(name)
    return found
