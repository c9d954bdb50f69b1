"""Counts how large the code and the documents are: `python -m tests.unit.structure.measures`.

It prints each measure with the figure that `measures.toml` keeps and the goal. `test_measures.py` compares the two.
"""

from __future__ import annotations

import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.helpers.imports import ROOT, imports_of

_PRODUCT: Final = ("rmqio/", "pyspark_rocketmq/", "pipelines/")
_FOLDERS: Final = (*_PRODUCT, "tests/", "docs/")
_SUFFIXES: Final = (".py", ".c", ".h", ".md")


class Measure(NamedTuple):
    """What is counted."""

    step: int
    """Figures are kept as multiples of it, so that not every change has to change them."""
    goal: int | None


MEASURES: Final = {
    "modules": Measure(5, 400),
    "lines of product": Measure(100, 98_000),
    "lines of sql": Measure(100, 20_000),
    "lines of tests": Measure(100, 90_000),
    "words of documents": Measure(100, 55_000),
    "modules too deep": Measure(5, 0),
    "modules with one importer, in its folder": Measure(5, 25),
    "modules under 60 lines": Measure(5, None),
    "modules over 600 lines": Measure(1, 0),
    "lines of the largest module": Measure(10, 800),
}


def counts(files: Mapping[str, bytes]) -> dict[str, int]:
    """Returns all measures of files, which are named by their paths below the root."""
    product = [path for path in files if path.startswith(_PRODUCT) and path.endswith((".py", ".c", ".h"))]
    modules = [path for path in product if path.endswith(".py") and not path.startswith("pipelines/")]
    lines = {path: content.count(b"\n") for path, content in files.items()}
    return {
        "modules": len(modules),
        "lines of product": sum(lines[path] for path in product),
        "lines of sql": sum(lines[path] for path in product if path.startswith("rmqio/sql/")),
        "lines of tests": sum(lines[path] for path in files if path.startswith("tests/") and path.endswith(".py")),
        "words of documents": sum(len(files[path].decode().split()) for path in files if _is_document(path)),
        "modules too deep": sum(_is_too_deep(path) for path in modules),
        "modules with one importer, in its folder": len(_with_one_importer({path: files[path] for path in modules})),
        "modules under 60 lines": sum(lines[path] < 60 and not _is_package(path) for path in modules),
        "modules over 600 lines": sum(lines[path] > 600 for path in modules),
        "lines of the largest module": max((lines[path] for path in modules), default=0),
    }


def _is_document(path: str) -> bool:
    return path.endswith(".md") and (path.startswith("docs/") or "/" not in path)


def _is_package(path: str) -> bool:
    return path.endswith("/__init__.py")


def _is_too_deep(path: str) -> bool:
    """A package of rmqio has modules, or packages of modules. A runner's folder has the same again."""
    return path.count("/") > (4 if path.startswith("rmqio/runners/") else 3)


def _with_one_importer(modules: Mapping[str, bytes]) -> set[str]:
    """Returns the modules that only a module next to them imports. They may be a part of it."""
    paths = {_name(path): path for path in modules}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in paths.items():
        for imported in imports_of(modules[path].decode(), name, path, is_package=_is_package(path)):
            # What a statement imports may be a module, or stand in one.
            names = (imported.target, imported.target.rpartition(".")[0])
            if (target := next((each for each in names if each in paths), None)) is not None:
                importers[target].add(name)
    return {
        target
        for target, names in importers.items()
        if len(names) == 1 and not _is_package(paths[target]) and _folder({target}) == _folder(names)
    }


def _name(path: str) -> str:
    folder, _, rest = path.removesuffix(".py").removesuffix("/__init__").partition("/")
    return ".".join([folder, *filter(None, rest.split("/"))])


def _folder(names: Iterable[str]) -> str:
    (name,) = names
    return name.rpartition(".")[0]


def sources() -> dict[str, bytes]:
    """Returns the files that are counted: what git knows or would add, or the whole folders where there is no git."""
    paths = {ROOT / name for name in _listed_by_git()} or {*ROOT.glob("*.md"), *_all_below(_FOLDERS)}
    names = {path.relative_to(ROOT).as_posix(): path for path in paths if path.suffix in _SUFFIXES and path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if name.startswith(_FOLDERS) or "/" not in name}


def _listed_by_git() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:  # no git
        return []
    return listing.split("\0")[:-1]


def _all_below(folders: Iterable[str]) -> Iterator[Path]:
    for folder in folders:
        yield from (ROOT / folder).rglob("*")


def kept() -> dict[str, dict[str, Any]]:
    """Returns `measures.toml`: for each measure the figure `most` and, if a commit has raised it, `why`."""
    return tomllib.loads(Path(__file__).with_name("measures.toml").read_text("utf-8"))


def complaint(name: str, count: int, most: int) -> str | None:
    """Returns what to do if a count has grown, or if it has fallen so far that the kept figure has to follow."""
    step = MEASURES[name].step
    figure = -(-count // step) * step
    if count > most:
        return (
            f"{name}: {count:,}, and at most {most:,} are allowed. Make it smaller. If it has to grow, set `most = "
            f'{figure}` for it in tests/unit/structure/measures.toml, and say why in a line below: `why = "..."`.'
        )
    if figure < most - step:
        return (
            f"{name}: only {count:,}, and {most:,} are allowed. Keep what was won: set `most = {figure}` for it in "
            "tests/unit/structure/measures.toml, and remove its `why`."
        )
    return None


def main() -> None:
    """Prints a line for each measure."""
    figures = kept()
    for name, count in counts(sources()).items():
        goal = "as few as have a reason" if MEASURES[name].goal is None else f"{MEASURES[name].goal:>6,}"
        print(f"{name:42} {count:>7,}   at most {figures[name]['most']:>7,}   goal {goal}")


if __name__ == "__main__":
    main()
