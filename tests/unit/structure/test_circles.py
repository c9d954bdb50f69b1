"""No modules and no packages import each other in a circle. Reads the sources, as `test_layers`."""

from __future__ import annotations

from tests.helpers.imports import all_imports, sources


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and under TYPE_CHECKING count: who reads one file must not need all of them."""
    modules = {module for module, path in sources() if path.name != "__init__.py"}
    imported: dict[str, set[str]] = {module: set() for module in modules}
    for each in all_imports():
        parts = each.target.split(".")
        names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        found = next((name for name in names if name in modules), None)
        if each.module in modules and found is not None and found != each.module:
            imported[each.module].add(found)

    assert not _circles(imported)


def test_no_packages_import_each_other_in_a_circle() -> None:
    """As wholes, which can happen without any two modules that do: those of `rmqio/`, and what stands in each."""
    modules = {module for module, _ in sources()}
    imported: dict[str, set[str]] = {}
    for each in all_imports():
        parts, other = each.module.split("."), each.target.split(".")
        while ".".join(other) not in modules and other:
            other.pop()  # a name in a module
        same = next((at for at, (one, two) in enumerate(zip(parts, other, strict=False)) if one != two), 0)
        if same:
            package, its = ".".join(parts[: same + 1]), ".".join(other[: same + 1])
            imported.setdefault(package, set()).add(its)
            imported.setdefault(its, set())
    assert len(imported) > 400, "packages, and modules that import one beside them"
    assert not _circles(imported)


def _circles(imported: dict[str, set[str]]) -> set[frozenset[str]]:
    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            for module in imported[left.pop()] - seen:
                seen.add(module)
                left.append(module)
        return seen

    reaches = {module: reached(module) for module in imported}
    return {
        frozenset(other for other in reaches[module] if module in reaches[other])
        for module in imported
        if module in reaches[module]
    }


def test_a_circle_is_found() -> None:
    assert _circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}}) == {frozenset("bc"), frozenset("d")}
