"""The site's navigation, reference and pictures are complete, and its tools find what is broken, and say it."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from docs.tools import build, draw
from docs.tools.links import broken_links, repository_path
from docs.tools.reasons import reasons

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


def test_a_folder_of_pages_has_a_section_of_its_own_that_begins_with_its_index() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\n\n")[0]
    sections = [re.findall(r"([\w/-]+\.md)$", each, re.MULTILINE) for each in re.split(r"- [^:\n]+:\n", nav)]
    for index in (DOCS).glob("*/index.md"):
        folder = index.parent.name
        pages = [f"{folder}/{each.name}" for each in index.parent.glob("*.md")]
        found = [each for each in sections if f"{folder}/index.md" in each]
        assert [each[0] for each in found] == [f"{folder}/index.md"], folder
        assert sorted(each for each in found[0] if each.startswith(f"{folder}/")) == sorted(pages)


def test_the_page_of_examples_has_each_question_of_their_readme() -> None:
    row = r"^\| (.+?\?) \| \W*(?:examples/)?([\w.]+)\W"
    readme, page = ((ROOT / each).read_text() for each in ("examples/README.md", "docs/examples.md"))
    assert re.findall(row, readme, re.MULTILINE) == re.findall(row, page, re.MULTILINE) != []


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


# ---- reasons ---------------------------------------------------------------------------------------------------------

GREEN: Final = "Build started\nNo issues found\nBuild finished in 9.37s\n"
GRIFFE: Final = "griffe: rmqio/options.py:304: Failed to get 'name: description' pair from 'unit_name,'\n"
WARNING: Final = (
    "\x1b[33mWarning:\x1b[0m page does not exist\n    \x1b[38;5;246m╭─[\x1b[0m install.md:72:9 ]\n"
    "1 issues found\nTraceback (most recent call last):\n  File\nRuntimeError: Aborted because --strict flag is set\n"
)
RAISED: Final = (
    "mkdocstrings: a.B could not be found\nTraceback (most recent call last):\n  File\n"
    "RuntimeError: Python error: PluginError: Could not collect 'a.B'\nTraceback (most recent call last):\n  File\n\n"
)


@pytest.mark.parametrize(
    ("output", "status", "found"),
    [
        (GREEN, 0, []),
        (GRIFFE + GREEN, 0, ["rmqio/options.py:304: griffe: Failed to get 'name: description' pair from 'unit_name,'"]),
        (WARNING, 1, ["docs/install.md:72:9: page does not exist"]),
        (RAISED, 1, ["mkdocstrings: a.B could not be found", "PluginError: Could not collect 'a.B'"]),
        (RAISED.replace("a.B", "rmqio.Record"), 1, ["docs/api/values.md:"]),  # the page that shows it
        ("Error: while parsing\n  line 3, column 1\n", 1, ["mkdocs.yml: while parsing line 3, column 1"]),
        ("Traceback (most recent call last):\n  File\nOSError: no space\n", 1, ["OSError: no space"]),
        ("python: No module named zensical\n", 1, ["python: No module named zensical (status 1)"]),
        ("Build started\n", -9, ["Zensical was ended by SIGKILL"]),
        ("", 3, ["Zensical said nothing (status 3)"]),
    ],
)
def test_the_reasons_of_a_failure_are_found(output: str, status: int, found: list[str]) -> None:
    got = reasons(output, status)
    assert [each[: len(wanted)] for each, wanted in zip(got[-len(found) :], found, strict=True)] == found


@pytest.mark.parametrize(
    ("output", "link", "last"),
    [
        (GREEN, "#here", None),
        (GRIFFE + GREEN, "#here", "make docs: rmqio/options.py:304: griffe: Failed to get"),
        (GREEN, "#nope", "make docs: build/site/index.html: #nope: the page has no such anchor"),
    ],
)
def test_the_last_line_says_why_the_site_is_refused(
    output: str,
    link: str,
    last: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def built(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "index.html").write_text(f'<a href="{link}">self</a><p id="here">')
        return subprocess.CompletedProcess([], 0, output)

    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "SITE", tmp_path / "site")
    monkeypatch.setattr(subprocess, "run", built)
    assert build.main() == (last is not None)
    said, errors = capfd.readouterr()
    assert errors.splitlines()[-1].startswith(last) if last else said.startswith("build/site: 1 pages") and not errors


# ---- pictures --------------------------------------------------------------------------------------------------------


def test_all_pictures_have_a_source() -> None:
    assert {path.name for path in draw.FOLDER.iterdir()} == set(draw.PICTURES)


@pytest.mark.parametrize("name", sorted(draw.PICTURES))
def test_files_that_a_picture_names_exist(name: str) -> None:
    named = re.findall(r"[\w/]+\.py", (draw.FOLDER / name).read_text())
    folders = [ROOT / "rmqio", ROOT / "rmqio" / "runners" / "spark"]
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
