"""Which tests a change is about: those that are new or do something else since what landed last."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, TypeAlias

from tests.gate.report import git

BASE: Final = "RMQIO_BASE"
"""A variable of the environment: a commit to compare with instead."""
_MAIN: Final = "origin/main"
_FUNCTION: Final = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS: Final = _FUNCTION | ast.ClassDef
_OF_ALL: Final = re.compile(
    "pytestmark|pytest_generate_tests|(setup|teardown)_(module|function|class|method)|(setUp|tearDown)(Module|Class)?"
)
"""Names that pytest uses for all tests of a file or a class."""
_OF_ALL_BELOW: Final = "pytest_generate_tests"
"""The one that it also uses of a `conftest.py`. The other hooks there do not say what a test does."""


def changed_tests(root: Path) -> list[str]:
    """Returns pytest's ids, without parameters, of tests that do something else than each test of the other commit.

    What a test does is its body, its decorators, and what it uses of its file, its class and each `conftest.py` above:
    tables, functions, classes, fixtures, marks. A renamed or moved test is not there; nothing is, if there is no
    parent, as in a shallow clone. Raises `ValueError` for a `RMQIO_BASE` that is no commit.
    """
    base = base_of(root)
    if base is None:
        return []
    then, now = _Tree(root, base), _Tree(root, "HEAD")
    names = (git(root, "diff", "--name-only", "--no-renames", base, "HEAD", "--", "tests") or "").splitlines()
    files = {name for name in names if _is_test(name)}
    for name in names:
        if PurePosixPath(name).name == _CONFTEST:
            files |= _asking(root, now, name, _other_fixtures(then, now, name))
    before: dict[str, dict[str, Mapping[str, str]]] = defaultdict(dict)
    for name in files:
        for each in then.tests(name):
            before[each.body][f"{name}::{each.name}"] = each.used
    found = []
    for name in sorted(files):
        for each in now.tests(name):
            test, alike = f"{name}::{each.name}", before[each.body]
            others = [alike[test]] if test in alike else alike.values()  # it was there, or may have another name now
            if test not in found and not any(_is_same(used, each.used) for used in others):
                found.append(test)
    for cached in (_dump, _meant, _is_fixture, _is_autouse):  # the gate goes on for long
        cached.cache_clear()
    return found


def _is_test(name: str) -> bool:
    return PurePosixPath(name).match("test_*.py")


def _is_same(then: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether nothing is other that both files have: what a file imports is not looked at."""
    return all(then.get(name, each) == each for name, each in now.items())


def _other_fixtures(then: _Tree, now: _Tree, conftest: str) -> dict[str, bool]:
    """Returns the fixtures that are other than before, and whether all tests have them."""
    before, after = ({each.name: each for each in tree.fixtures(conftest)} for tree in (then, now))
    return {
        name: any(each[name].is_of_all for each in (before, after) if name in each)
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    }


def _asking(root: Path, now: _Tree, conftest: str, fixtures: Mapping[str, bool]) -> set[str]:
    """Returns the files with tests that may use these fixtures of a `conftest.py`, also by others."""
    folder = str(PurePosixPath(conftest).parent)
    if any(fixtures.values()):
        return {*filter(_is_test, (git(root, "ls-tree", "-r", "--name-only", "HEAD", folder) or "").splitlines())}
    found, names, wanted = set[str](), set[str](), {*fixtures}
    while wanted - names:
        names |= wanted
        words = [word for name in sorted(names) for word in ("-e", name)]
        lines = git(root, "grep", "-lwF", *words, "HEAD", "--", folder) or ""
        found = {line.removeprefix("HEAD:") for line in lines.splitlines()}
        wanted = {each.name for name in found if name.endswith(_CONFTEST) for each in now.fixtures(name)}
    return {*filter(_is_test, found)}


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


_CONFTEST: Final = "conftest.py"


class _Test(NamedTuple):
    """A test or a fixture. `name`: as `Class::name`. `body`: what it does. `used`: the same of what it uses, by name.

    `is_of_all`: whether all tests have the fixture.
    """

    name: str
    body: str
    used: Mapping[str, str]
    is_of_all: bool = False


class _Names:
    """What a file or a class gives names to. `outer`: of a class, its file or class; the `conftest.py` above a file."""

    def __init__(self, body: Sequence[ast.stmt], outer: _Names | None, label: str = "") -> None:
        self.outer, self.label = outer, label
        self.of: dict[str, list[ast.stmt]] = defaultdict(list)
        for node in body:
            for name in _named(node):
                self.of[name].append(node)
        for node, _ in _below(body):
            if isinstance(node, _FUNCTION):  # a fixture is looked for there
                for name in _named(node):
                    self.of[name].append(node)

    @property
    def is_class(self) -> bool:
        return self.label.startswith(_SELF)

    @property
    def file(self) -> _Names | None:
        return next((each for each in self.chain() if not each.is_class), None)

    def chain(self) -> Iterator[_Names]:
        names: _Names | None = self
        while names:
            yield names
            names = names.outer

    @functools.cached_property
    def of_all_tests(self) -> list[tuple[ast.AST, _Names]]:
        """Returns what pytest does for each test here, such as fixtures with `autouse`."""
        return [
            (node, names)
            for names in self.chain()
            for name, nodes in names.of.items()
            for node in nodes
            if (_OF_ALL.fullmatch(name) and not names.is_conftest) or name == _OF_ALL_BELOW or _is_autouse(node)
        ]

    @property
    def is_conftest(self) -> bool:
        return self.label.startswith(_CONFTEST)

    def meant(self, node: ast.AST) -> Iterator[tuple[str, _Names]]:
        """Yields the names that a part of the code may mean, and whose they are."""
        match node:
            case ast.Name(id=name):
                if self.file and name in self.file.of:
                    yield name, self.file
            case ast.Attribute(attr=name) if self.is_class and name in self.of:
                yield name, self
            case ast.arg(arg=name):
                yield from self._fixtures(name)
            case ast.Constant(value=str(text)):
                for name in re.findall(r"\w+", text) if len(text) < _LONG else ():
                    yield from self._fixtures(name)

    def _fixtures(self, name: str) -> Iterator[tuple[str, _Names]]:
        return ((name, each) for each in self.chain() if any(map(_is_fixture, each.of.get(name, ()))))


_SELF: Final = "self."
_LONG: Final = 200
"""Characters of a text that names no fixtures any more."""


class _Tree:
    """The tests of a commit."""

    def __init__(self, root: Path, commit: str) -> None:
        self._root, self._commit = root, commit
        self._conftests: dict[PurePosixPath, _Names | None] = {}
        self._files: dict[str, list[ast.stmt]] = {}

    def _nodes(self, name: str) -> list[ast.stmt]:
        if name not in self._files:
            self._files[name] = []
            with contextlib.suppress(SyntaxError):  # pytest says so, of the commit that is tested
                file = ast.parse(git(self._root, "show", f"{self._commit}:{name}") or "")
                self._files[name] = _Plain(file).visit(file).body
        return self._files[name]

    def _above(self, folder: PurePosixPath) -> _Names | None:
        """Returns what the next `conftest.py` gives names to."""
        if folder not in self._conftests:
            outer = None if folder == folder.parent else self._above(folder.parent)
            nodes = self._nodes(str(folder / _CONFTEST))
            label = f"{_CONFTEST} {len([*outer.chain()]) if outer else 0}: "
            self._conftests[folder] = _Names(nodes, outer, label) if nodes else outer
        return self._conftests[folder]

    def fixtures(self, conftest: str) -> Iterator[_Test]:
        names = self._above(PurePosixPath(conftest).parent)
        if names is None or not self._nodes(conftest):
            return
        for name, nodes in names.of.items():
            for node in nodes:
                if _is_fixture(node) or name == _OF_ALL_BELOW:
                    is_of_all = name == _OF_ALL_BELOW or _is_autouse(node)
                    yield _Test(name, _dump(node), _used([(node, names)]), is_of_all)

    def tests(self, name: str) -> Iterator[_Test]:
        nodes = self._nodes(name)
        file = _Names(nodes, self._above(PurePosixPath(name).parent))
        classes = {node.name: node for node, _ in _all(nodes) if isinstance(node, ast.ClassDef)}
        yield from _tests([nodes], file, classes)


def _tests(
    bodies: Sequence[Sequence[ast.stmt]],
    names: _Names,
    classes: Mapping[str, ast.ClassDef],
    within: str = "",
    marks: Sequence[ast.AST] = (),
) -> Iterator[_Test]:
    """Yields the tests of a file or, with its id and its marks, of a class: of each body, what none behind it has.

    A test of several branches is there several times.
    """
    found: dict[str, list[tuple[_Definition, tuple[ast.expr, ...]]]] = {}
    for each in bodies:
        of_body = defaultdict(list)
        for node, above in _all(each):
            if isinstance(node, _DEFINITIONS):
                of_body[node.name].append((node, above))
        found |= of_body
    for name, (node, above) in ((name, one) for name, several in found.items() for one in several):
        if isinstance(node, ast.ClassDef):
            line = [*_line(node, classes)]
            lines = [of.body for of in reversed(line)]
            members = _Names(
                [each for body in lines for each in body], names, f"{_SELF}{names.label if names.is_class else ''}"
            )
            own = [mark for of in line for mark in of.decorator_list]
            yield from _tests(lines, members, classes, f"{within}{name}::", [*marks, *own, *above])
        elif name.startswith("test_"):
            yield _test(f"{within}{name}", node, names, [*marks, *above])


_Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Placed: TypeAlias = tuple[ast.stmt, tuple[ast.expr, ...]]


def _all(body: Sequence[ast.stmt]) -> Iterator[_Placed]:
    """Yields statements, also those below others, such as `if`, and the expressions that those stand for."""
    for node in body:
        yield node, ()
    yield from _below(body)


def _below(body: Sequence[ast.stmt]) -> Iterator[_Placed]:
    for node in body:
        if isinstance(node, _DEFINITIONS):
            continue
        fields = [
            each for _, value in ast.iter_fields(node) for each in (value if isinstance(value, list) else [value])
        ]
        above = tuple(each for each in fields if isinstance(each, ast.expr))
        for each in fields:
            inner = [each] if isinstance(each, ast.stmt) else getattr(each, "body", [])  # of `except` and `case`
            for statement, others in _all(inner if isinstance(inner, list) else []):
                yield statement, (*above, *others)


class _Plain(ast.NodeTransformer):
    """Decorators have what their names stand for: `from pytest import fixture as fx`, `auto = partial(fixture)`."""

    def __init__(self, file: ast.Module) -> None:
        self._meant: dict[str, ast.expr] = {}
        for node, _ in _all(file.body):
            match node:
                case ast.ImportFrom(module="pytest", names=names):
                    self._meant |= {each.asname: ast.Name(each.name, ast.Load()) for each in names if each.asname}
                case ast.Assign(targets=[ast.Name(name)], value=value) if "fixture" in ast.unparse(value):
                    self._meant[name] = value

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list = [self._with_meaning(each) for each in node.decorator_list]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        node.decorator_list = [self._with_meaning(each) for each in node.decorator_list]
        return node

    def _with_meaning(self, decorator: ast.expr) -> ast.expr:
        match decorator:
            case ast.Name(name):
                return self._meant.get(name, decorator)
            case ast.Call(ast.Name(name)):
                decorator.func = self._meant.get(name, decorator.func)
        return decorator


def _line(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    """Yields a class, and those of its file that it has its tests and methods of."""
    yield node
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes and classes[base.id] is not node:
            yield from _line(classes[base.id], classes)


def _test(
    name: str, node: ast.FunctionDef | ast.AsyncFunctionDef, names: _Names, marks: Sequence[ast.AST] = ()
) -> _Test:
    of_all = names.of_all_tests
    defaults = [each for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None]
    own = [*node.decorator_list, *marks, *node.body, *defaults]
    arguments = [each.arg for each in (*node.args.args, *node.args.kwonlyargs) if each.arg != "self"]
    body = "".join([*map(_dump, [*own, *(each for each, _ in of_all)]), *arguments])
    return _Test(name, body, _used([(each, names) for each in (*own, node.args)] + of_all))


def _used(left: list[tuple[ast.AST, _Names]]) -> dict[str, str]:
    """Returns what is used there, and by what is used there, by its name."""
    found: dict[str, str] = {}
    while left:
        for name, whose in _meant(*left.pop()):
            key = f"{whose.label}{name}"
            if key not in found:
                found[key] = "".join(map(_dump, whose.of[name]))
                left += [(other, whose) for other in whose.of[name]]
    return found


@functools.cache  # tests share what they use
def _meant(node: ast.AST, names: _Names) -> frozenset[tuple[str, _Names]]:
    return frozenset(each for inner in ast.walk(node) for each in names.meant(inner))


def _named(node: ast.stmt) -> set[str]:
    """Returns what a statement of a file or a class gives names to, or changes."""
    if isinstance(node, ast.ClassDef):
        return {node.name}
    if isinstance(node, _FUNCTION):
        return {node.name, *_fixture_names(node)}
    inner = [*ast.walk(node)]
    if isinstance(node, ast.Expr):  # such as ROWS.append(1)
        return {each.id for each in inner if isinstance(each, ast.Name)}
    targets = [each for each in inner if isinstance(getattr(each, "ctx", None), ast.Store)]
    names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return names | {each.name for each in inner if isinstance(each, ast.ClassDef | _FUNCTION)}


def _fixture_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    keywords = (each for call in node.decorator_list if isinstance(call, ast.Call) for each in call.keywords)
    return (str(each.value.value) for each in keywords if each.arg == "name" and isinstance(each.value, ast.Constant))


_dump: Final = functools.cache(ast.dump)


@functools.cache
def _is_fixture(node: ast.AST) -> bool:
    return any("fixture" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))


@functools.cache
def _is_autouse(node: ast.AST) -> bool:
    return any("autouse=True" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))
