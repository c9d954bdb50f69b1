"""The site's navigation, reference and pictures are complete, and its link checker finds what is broken."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, Final

import pytest

from docs.tools import draw
from docs.tools.build import lay_out
from docs.tools.links import broken_links, repository_path

ROOT: Final = Path(__file__).parents[3]
DOCS: Final = ROOT / "docs"
PAGES: Final = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
PACKAGES: Final = [
    "rmqio",
    "rmqio.client",
    "rmqio.enrich",
    "rmqio.local",
    "rmqio.pyspark",
    "rmqio.rules",
    "rmqio.runners",
    "rmqio.runners.flink",
    "rmqio.runners.spark",
    "rmqio.serde",
    "rmqio.serde.avro",
    "rmqio.serde.registry",
    "rmqio.sql",
    "rmqio.testing",
    "rmqio.yaml",
]
"""Modules that a program imports from."""
NEEDED: Final = {
    "rmqio.enrich": ("pyarrow", "numpy"),
    "rmqio.pyspark": ("pyspark",),
    "rmqio.rules": ("msgspec",),
    "rmqio.runners.spark": ("pyspark",),
    "rmqio.sql": ("lark", "msgspec"),
    "rmqio.yaml": ("yaml", "lark", "msgspec"),
}
"""The packages of extras that they need."""


def require(name: str) -> None:
    for package, needed in NEEDED.items():
        if f"{name}.".startswith(f"{package}."):
            for each in needed:
                pytest.importorskip(each, reason=f"{package} needs it")


def test_each_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r"^\s+- (?:.+: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(PAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_has_each_public_name(package: str) -> None:
    require(package)
    module: Any = importlib.import_module(package)
    text = "".join(page.read_text() for page in sorted((DOCS / "api").glob("*.md")))
    described = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    described |= {"rmqio.runners.options"} if "rmqio.runners.options.options" in described else set()  # also a module
    described |= {f"rmqio.client.{name}" for name in ("COMMIT", "ROLLBACK", "UNKNOWN") if f"`{name}`" in text}

    def is_described(name: str) -> bool:  # by itself, or with all of its module
        return f"{package}.{name}" in described or getattr(getattr(module, name), "__module__", "") in described

    assert [name for name in module.__all__ if not is_described(name)] == []
    assert [name for name in described if not _exists(name)] == []


def _exists(name: str) -> bool:
    module, _, last = name.rpartition(".")
    require(name)
    try:
        return hasattr(importlib.import_module(module), last)
    except ModuleNotFoundError:
        return False


def test_the_reference_is_made_of_the_packages_as_they_are_installed(tmp_path: Path) -> None:
    lay_out(tmp_path / "api")
    for path in ("rmqio/__init__.py", "rmqio/runners/spark/runner.py", "rmqio/schemas/__main__.py"):
        assert (tmp_path / "api" / path).is_file()


# ---- pictures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(draw.PICTURES))
def test_a_picture_is_what_its_source_draws(name: str) -> None:
    assert (draw.FOLDER / name).read_text() == str(draw.PICTURES[name]()), "run python -m docs.tools.draw"


def test_all_pictures_have_a_source() -> None:
    assert {path.name for path in draw.FOLDER.iterdir()} == set(draw.PICTURES)


@pytest.mark.parametrize("name", sorted(draw.PICTURES))
def test_files_that_a_picture_names_exist(name: str) -> None:
    named = re.findall(r"[\w/]+\.py", (draw.FOLDER / name).read_text())
    folders = [ROOT / "rmqio", ROOT / "runners" / "spark"]
    assert [path for path in named if not any((folder / path).is_file() for folder in folders)] == []


# ---- links -----------------------------------------------------------------------------------------------------------


def test_broken_links_of_a_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "read").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="read/#start">ok</a><a href="read/#nope">no anchor</a><a href="gone/">no page</a>'
        '<img src="none.svg"><a href="https://example.org/">elsewhere</a><a href="#here">self</a><p id="here">'
    )
    (tmp_path / "read" / "index.html").write_text('<h2 id="start">Start</h2><a href="..">home</a>')
    found = broken_links(tmp_path)
    assert (found.pages, found.links) == (2, 6)
    assert found.broken == [
        "index.html: gone/: there is no such file",
        "index.html: none.svg: there is no such file",
        "index.html: read/#nope: the page has no such anchor",
    ]


@pytest.mark.parametrize(
    ("link", "path"),
    [
        ("../tests/conftest.py", "tests/conftest.py"),
        ("../../CONTRIBUTING.md#set-up", "CONTRIBUTING.md"),
        ("../read.md", None),  # of the site
        ("read.md", None),
        ("https://example.org/../tests/conftest.py", None),
        ("../tests/nowhere.py", None),  # the check of the site's links finds it
    ],
)
def test_links_out_of_the_site_are_told_from_those_in_it(link: str, path: str | None) -> None:
    assert repository_path(link) == path


def _long_lines(page: Path) -> list[str]:
    is_fenced, found = False, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        is_fenced ^= line.lstrip().startswith("```")
        if len(line) > 140 and " " in line.strip() and not is_fenced and not line.startswith("|"):
            found.append(f"{page.relative_to(ROOT)}:{number}: {len(line)} characters")
    return found


def test_lines_of_prose_have_at_most_140_characters() -> None:
    """Tables cannot be wrapped."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests/README.md", ROOT / "examples/README.md"]
    assert [line for page in pages for line in _long_lines(page)] == []
