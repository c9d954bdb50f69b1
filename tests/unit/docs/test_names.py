"""Files, modules and tests that the documents name are there, and their links lead somewhere on a repository host."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.md"), ROOT / "tests/README.md"]
)
PATHS = sorted(ROOT.glob("tests/**/*.py"))
# By their last folders, too: pages name a file as `batch/test_runner.py`.
FILES = {"/".join(path.parts[-count:]): path for path in PATHS for count in range(1, 8)}
NAMES = {name for path in PATHS for name in (path.stem, *re.findall(r"def (test_\w+)", path.read_text()))}
FOLDERS: Final = "rmqio|pipelines|schemas|bench|tests|docs|examples"
_CODE: Final = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    paths = set(re.findall(r"[`(](tests/[\w/]+\.py)", text))
    assert {path for path in paths if not (ROOT / path).is_file()} == set()
    assert {name for name in re.findall(r"`((?:\w+/)*test_\w+\.py)", text) if name not in FILES} == set()
    if page.name != "spark-runner.md":  # which names Beam's own tests; test_spark_runner.py looks at it
        assert {name for name in re.findall(r"`(test_\w+)[`\[]", text) if name not in NAMES} == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    assert [path for path in paths_in(page.read_text()) if not (ROOT / path).is_file()] == []


_CITED: Final = re.compile(r"`(tests/[\w/]+\.py)`:((?:,?\s+`test_\w+(?:\[[^`]*\])?`(?: \([^)]*\))?)+)")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_that_a_page_cites_are_in_the_file_that_it_names(page: Path) -> None:
    cited = cited_in(page.read_text())
    assert [(path, name) for path, name in cited if f"def {name}(" not in (ROOT / path).read_text()] == []


def cited_in(text: str) -> list[tuple[str, str]]:
    """Returns the files and the functions of "`tests/a/test_b.py`: `test_c`, `test_d[e]`"."""
    return [(path, name) for path, names in _CITED.findall(text) for name in re.findall(r"`(test_\w+)", names)]


def test_tests_in_a_text_are_found() -> None:
    text = "`tests/a/test_b.py`: `test_c`,\n `test_d[x]` (why), `test_e`; `test_f` and `tests/g.py`: all"
    assert cited_in(text) == [("tests/a/test_b.py", name) for name in ("test_c", "test_d", "test_e")]


def paths_in(text: str) -> list[str]:
    """Returns the paths of files that a text names from the top folders on."""
    return sorted(set(re.findall(rf"(?<![\w/.-])((?:{FOLDERS})/[\w./-]+\.(?:py|md|c|toml|jsonl|java|svg))\b", text)))


def test_paths_in_a_text_are_found() -> None:
    text = "see `rmqio/wire/stored.py` and (rmqio/runners/spark/runner.py), not ../rmqio/model.py or x/rmqio/a.py"
    assert paths_in(text) == ["rmqio/runners/spark/runner.py", "rmqio/wire/stored.py"]


# ---- links ----------------------------------------------------------------------------------------------------------


def links(text: str) -> Iterator[str]:
    """Yields the targets of links outside of code, without those to other hosts."""
    for inline, defined in _LINK.findall(_CODE.sub("code", text)):
        target = inline or defined
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def anchors(text: str) -> set[str]:
    """Returns the anchors that a repository host gives the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"(?ms)^```.*?^```$", "", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        found.add(slug)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert [link for link in links(page.read_text()) if not leads_somewhere(page, link)] == []


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / unquote(path)).resolve() if path else page
    if not anchor or target.suffix != ".md":
        return target.exists()
    return target.is_file() and anchor in anchors(target.read_text())


def test_a_broken_link_is_found() -> None:
    text = '[a](b.md#c) `[x](y.md)`\n```\n[z](w.md)\n```\n[t1]: ../tests/t.py "title"\n[h](https://example.org)'
    assert list(links(text)) == ["b.md#c", "../tests/t.py"]
    assert anchors("# What holds\n## `--streaming`, and more\n```\n# no heading\n```") == {
        "what-holds",
        "--streaming-and-more",
    }


# ---- single pages ----------------------------------------------------------------------------------------------------


def test_every_case_of_every_runner_is_on_the_page_of_delivery_guarantees() -> None:
    page = " ".join((ROOT / "docs" / "delivery-guarantees.md").read_text().split())
    cases = re.findall(r"def test_((?:source|sink)_\w+)", FILES["delivery/test_delivery.py"].read_text())
    assert len(cases) == 9
    assert {case for case in cases if case.replace("_", " ") not in page} == set()


def test_each_system_of_the_table_has_the_tests_that_were_run() -> None:
    shown = tomllib.loads(Path(__file__).with_name("systems.toml").read_text())
    page = (ROOT / "docs" / "connect" / "index.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:2] == "| "]
    head = rows.index(["system", "read", "write", "real server in the tests", "fault test", "guarantee"])
    systems = {re.sub(r"\[(.*)\]\(.*\)", r"\1", row[0]): row for row in rows[head + 1 :] if len(row) == 6}
    assert [*shown] == [*systems]
    for name, (*_, server, fault, guarantee) in systems.items():
        assert guarantee, name
        assert bool(shown[name]["fault"]) is (fault != "-"), f"{name} has no test of a fault"
        assert not shown[name]["server"] or server != "-", name
        for each in (*shown[name]["server"], *shown[name]["fault"]):
            path, _, test = each.partition("::")
            assert f"def {test}(" in (ROOT / path).read_text(), each
