"""Follows the imported names of a source through its assignments, by reading it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.helpers.imports import targets_of

_ROUNDS = 5
"""How many assignments a value is followed through, if they stand in the wrong order. `x = x.y` would never end."""


class _Scope:
    """A module, a class or a function, with the names that it binds, and the full names that each may stand for."""

    def __init__(self, parent: _Scope | None, *, is_class: bool = False) -> None:
        self.parent, self.is_class = parent, is_class
        self.bound: dict[str, set[str]] = {}
        self.outside: set[str] = set()
        """Names that `global` and `nonlocal` declare. Both are looked up in the scopes around this one."""

    def of(self, name: str) -> dict[str, set[str]]:
        """Returns where a name is bound: here, or in the nearest scope around. A class does not lend its names."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.bound and name not in scope.outside and (scope is self or not scope.is_class):
                return scope.bound
            scope = scope.parent
        return self.bound


class ImportedNames:
    """The full names that the expressions of a source may stand for, if they begin with an imported name.

    A value is followed through assignments to names, default values, loops over literals, `getattr` with a constant,
    `cast`, `vars`, `import_module` and `sys.modules`. It is not followed through attributes, containers and calls: what
    a call returns is an object of the caller's own, in most cases.
    """

    def __init__(self, source: str, module: str, *, is_package: bool = False) -> None:
        self.tree = ast.parse(source)
        self._module, self._is_package = module, is_package
        self._scopes: dict[ast.AST, _Scope] = {}
        self._assigned: list[tuple[_Scope, str, ast.expr, _Scope]] = []
        self._visit(self.tree, _Scope(None))
        for _ in range(_ROUNDS):
            for scope, name, value, of_value in self._assigned:
                scope.of(name).setdefault(name, set()).update(self._paths(value, of_value))

    def paths(self, node: ast.AST) -> set[str]:
        """Returns the full names that an expression of the source may stand for."""
        return self._paths(node, self._scopes[node])

    def _paths(self, node: ast.AST, scope: _Scope) -> set[str]:
        match node:
            case ast.Name():
                return scope.of(node.id).get(node.id, set())
            case ast.Attribute():
                return {f"{path}.{node.attr}" for path in self._paths(node.value, scope)}
            case ast.IfExp():
                return self._paths(node.body, scope) | self._paths(node.orelse, scope)
            case ast.BoolOp():
                return {path for each in node.values for path in self._paths(each, scope)}
            case ast.NamedExpr():
                return self._paths(node.value, scope)
            case ast.Subscript(slice=ast.Constant(value=str(name))) if "sys.modules" in self._paths(node.value, scope):
                return {name}
            case ast.Call():
                return self._of_call(node, scope)
        return set()

    def _of_call(self, node: ast.Call, scope: _Scope) -> set[str]:
        match called(node), node.args:
            case "getattr", [of, ast.Constant(value=str(name)), *default]:
                found = {f"{path}.{name}" for path in self._paths(of, scope)}
                return found.union(*(self._paths(each, scope) for each in default))
            case "cast", [_, value]:
                return self._paths(value, scope)
            case "vars", [of]:
                return {f"{path}.__dict__" for path in self._paths(of, scope)}
            case "import_module", [ast.Constant(value=str(name)), *_]:
                return {name}
        return set()

    def _visit(self, node: ast.AST, scope: _Scope) -> None:
        self._scopes[node] = scope
        inner = scope
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.Global() | ast.Nonlocal():
                scope.outside.update(node.names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                inner = _Scope(scope)
                self._parameters(node.args, inner, scope)
            case ast.ClassDef():
                inner = _Scope(scope, is_class=True)
            case ast.Name(ctx=ast.Store()):
                scope.bound.setdefault(node.id, set())
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value, scope)
            case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                self._assign(node.target, value, scope)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                for each in node.iter.elts if isinstance(node.iter, ast.Tuple | ast.List | ast.Set) else ():
                    self._assign(node.target, each, scope)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            scope.bound.setdefault(node.name, set())
        for child, is_inside in _children(node):
            self._visit(child, inner if is_inside else scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: _Scope) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                path = alias.name if alias.asname else alias.name.partition(".")[0]
                scope.bound.setdefault(alias.asname or path, set()).add(path)
            return
        for alias, path in zip(node.names, targets_of(node, self._module, is_package=self._is_package), strict=True):
            scope.bound.setdefault(alias.asname or alias.name, set()).add(path)

    def _parameters(self, args: ast.arguments, inner: _Scope, outer: _Scope) -> None:
        positional = [*args.posonlyargs, *args.args]
        for each in (*positional, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))):
            inner.bound.setdefault(each.arg, set())
        last = positional[len(positional) - len(args.defaults) :]
        for parameter, default in (*zip(last, args.defaults), *zip(args.kwonlyargs, args.kw_defaults)):  # noqa: B905
            if default is not None:
                self._assigned.append((inner, parameter.arg, default, outer))

    def _assign(self, target: ast.expr, value: ast.expr, scope: _Scope) -> None:
        if isinstance(target, ast.Name):
            self._assigned.append((scope, target.id, value, scope))
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for each, part in zip(target.elts, value.elts, strict=False):
                self._assign(each, part, scope)


def called(node: ast.Call) -> str:
    """Returns the last name of what is called: `b` for `a.b()`."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Yields the children of a node, and whether each belongs to the scope that the node opens."""
    for field, value in ast.iter_fields(node):
        children: Iterable[object] = value if isinstance(value, list) else (value,)
        yield from ((each, field == "body") for each in children if isinstance(each, ast.AST))
