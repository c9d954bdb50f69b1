"""Which tests a change is about: those that do something else, by what they use of their file."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.gate.changed import changed_tests

GIT = ("git", "-c", "user.name=x", "-c", "user.email=x")
_IT = "def test_it(): assert 1\n"
_CLASS = "class TestOf:\n    def test_it(self): assert self.made()\n    def test_other(self): assert 1\n    "
_BASE = "class TestBase:\n    COUNT = 7\n    def test_it(self): assert self.COUNT\n"
_OF_CLASS = "TestOf::test_it"
_NESTED = "class TestOf:\n        def test_it(self): assert self.made()\n        "
_LAB = "def test_it(lab): assert lab\ndef test_other(): assert 1\n"
_MADE = "def made(): return 7\n@fixture\ndef lab(): return made()\n"
_OF_IT: Any = ["test_it"]
USES: dict[str, tuple[str, str, list[str]]] = {
    "a fixture of all": ("@fixture(autouse=True)\ndef ready(): yield 7\n" + _IT, "", _OF_IT),
    "what a fixture of all uses": ("N = 7\n@fixture(autouse=True)\ndef ready(): yield N\n" + _IT, "", _OF_IT),
    "a fixture that a mark names": ("@fixture\ndef lab(): yield 7\n@mark.usefixtures('lab')\n" + _IT, "", _OF_IT),
    "a fixture that all marks name": (
        "pytestmark = [mark.usefixtures('lab')]\n@fixture\ndef lab(): yield 7\n" + _IT,
        "",
        _OF_IT,
    ),
    "a fixture that is asked for": (
        "@fixture\ndef lab(): yield 7\ndef test_it(request): request.getfixturevalue('lab')\n",
        "",
        _OF_IT,
    ),
    "a fixture with another name": (f"@fixture(name='lab')\ndef _lab(): yield 7\n{_LAB}", "", _OF_IT),
    "pytestmark": ("pytestmark = mark.timeout(7)\n" + _IT, "", _OF_IT),
    "setup_function": ("def setup_function(): print(7)\n" + _IT, "", _OF_IT),
    "a tuple": ("A, (B, *C) = 1, (7, 3)\ndef test_it(): assert C\ndef test_other(): assert D\n", "", _OF_IT),
    "a loop": ("for each in [7]: A[each] = 1\ndef test_it(): assert A\n", "", _OF_IT),
    "a call": ("A = []\nA.append(7)\ndef test_it(): assert A\n", "", _OF_IT),
    "a sum": ("A = 1\nA += 7\ndef test_it(): assert A\n", "", _OF_IT),
    "a branch": ("if X:\n    def made(): return 7\ndef test_it(): assert made()\n", "", _OF_IT),
    "arguments": ("def test_it(n=7): assert n\n", "", _OF_IT),
    "a method": (f"{_CLASS}def made(self): return 7\n", "", ["TestOf::test_it"]),
    "what a method uses": (
        f"{_CLASS}def made(self): return self.n()\n    def n(self): return 7\n",
        "",
        ["TestOf::test_it"],
    ),
    "setup_method": (f"{_CLASS}def setup_method(self): self.n = 7\n", "", ["TestOf::test_it", "TestOf::test_other"]),
    "a mark of the class": (f"@mark.timeout(7)\n{_CLASS}pass\n", "", ["TestOf::test_it", "TestOf::test_other"]),
    "a fixture of the class": (
        "class TestOf:\n    @fixture\n    def lab(self): return 7\n    def test_it(self, lab): assert lab\n",
        "",
        ["TestOf::test_it"],
    ),
    "its other class": (
        f"{_BASE}class TestOf(TestBase):\n    def test_other(self): assert 1\n",
        "",
        ["TestBase::test_it", "TestOf::test_it"],
    ),
    "a fixture of conftest.py": (_LAB, _MADE, _OF_IT),
    "a fixture of all of conftest.py": (_IT, "@fixture(autouse=True)\ndef ready(): yield 7\n", _OF_IT),
    "another name of fixture": (f"from pytest import fixture as fx\n@fx\ndef lab(): return 7\n{_LAB}", "", _OF_IT),
    "another name of fixture, called": (
        f"from pytest import fixture as fx\n@fx(name='lab')\ndef _lab(): return 7\n{_LAB}",
        "",
        _OF_IT,
    ),
    "a kind of fixture": (f"auto = partial(fixture, autouse=True)\n@auto()\ndef ready(): yield 7\n{_IT}", "", _OF_IT),
    "a fixture in a branch": (f"if X:\n    @fixture\n    def lab(): return 7\n{_LAB}", "", _OF_IT),
    "its own branch": ("if X:\n    def test_it(): assert 7\n    def test_other(): assert 1\n", "", _OF_IT),
    "the condition of its branch": ("if X > 7:\n    def test_it(): assert 1\n", "", _OF_IT),
    "its other branches": (
        "try: a\nexcept E:\n    def test_it(): assert 7\n    def test_same(): assert 2\n"
        "else:\n    with X:\n        def test_it(): assert 1\n        def test_same(): assert 3\n",
        "",
        _OF_IT,
    ),
    "a class in a branch": (
        "if X: pass\nelse:\n    class TestOf:\n        def test_it(self): assert 7\n",
        "",
        [_OF_CLASS],
    ),
    "a class in a class": (f"class TestOut:\n    {_NESTED}def made(self): return 7\n", "", [f"TestOut::{_OF_CLASS}"]),
    "a mark of its outer class": (
        f"@mark.timeout(7)\nclass TestOut:\n    {_NESTED}pass\n",
        "",
        [f"TestOut::{_OF_CLASS}"],
    ),
    "a fixture of its outer class": (
        "class TestOut:\n    @fixture(autouse=True)\n    def ready(self): yield 7\n    "
        "class TestOf:\n        def test_it(self): assert 1\n",
        "",
        [f"TestOut::{_OF_CLASS}"],
    ),
    "pytest_generate_tests": (
        "def pytest_generate_tests(metafunc): metafunc.parametrize('n', [7])\n" + _IT,
        "",
        _OF_IT,
    ),
    "pytest_generate_tests of conftest.py": (
        _IT,
        "N = 7\ndef pytest_generate_tests(metafunc): metafunc.do(N)\n",
        _OF_IT,
    ),
    "a class of another name": (
        "class TestOut:\n    class Of:\n        n = 7\n    def test_it(self): assert 1\n",
        "",
        [],
    ),
    "nothing of conftest.py": ("def test_it(other): assert other\n", _MADE, []),
    "a hook": (_IT, "def pytest_configure(): print(7)\n", []),
    "nothing of its file": ("N = 7\nimport a7\ndef made(): return 7\n" + _IT, "", []),
}
"""What a test uses: its file, a conftest.py, and which tests are changed if each 7 is an 8."""


@pytest.fixture(scope="module")
def changed_by_use(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("root")
    subprocess.run([*GIT, "init", "-q"], cwd=root, check=True)
    for number in "78":
        for at, (file, conftest, _) in enumerate(USES.values()):
            folder = root / "tests" / str(at)
            (folder / "inner").mkdir(parents=True, exist_ok=True)
            (folder / "conftest.py").write_text(conftest.replace("7", number))
            # Those of a conftest.py are used by another one, too.
            outer = "@fixture\ndef lab(lab): return lab\n" if conftest else ""
            (folder / "inner" / "conftest.py").write_text(outer)
            (folder / "inner" / "test_it.py").write_text(file.replace("7", number))
        for command in (["add", "-A"], ["commit", "-qm", "x"]):
            subprocess.run([*GIT, *command], cwd=root, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RMQIO_BASE", raising=False)
        return changed_tests(root)


@pytest.mark.parametrize("use", USES)
def test_a_test_is_changed_with_what_it_uses(use: str, changed_by_use: list[str]) -> None:
    file = f"tests/{[*USES].index(use)}/inner/test_it.py::"
    assert [each.removeprefix(file) for each in changed_by_use if each.startswith(file)] == USES[use][2]


def test_changed_tests_are_those_with_another_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RMQIO_BASE", raising=False)  # of the run that this is a test of

    def commit(**files: str) -> None:
        for name, text in files.items():
            (tmp_path / "tests" / f"test_{name}.py").write_text(text)
        for command in (["add", "-A"], ["commit", "-qm", "x"]):
            subprocess.run([*GIT, *command], cwd=tmp_path, check=True)

    (tmp_path / "tests").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert changed_tests(tmp_path) == []  # there is no commit before
    table = "BASE = [1]\nROWS = [*BASE, 2]\n@mark(ROWS)\nasync def test_row(row): assert row\n"
    table += (
        "COUNT = 7\ndef twice(): return 2 * COUNT\nclass Made:\n    it = COUNT\n@fixture\ndef made(): return Made()\n"
    )
    table += "def test_of_constant(): assert COUNT\ndef test_of_function(): assert twice()\n"
    table += "def test_of_fixture(made): assert made\ndef test_of_none(other): assert other\n"
    table += "@mark([1])\ndef test_more(row): assert row + 1\n@mark([2])\ndef test_other(row): assert row + 2\n"
    moves = "def test_moves(): assert helper(3)\n"
    commit(a="def test_it(): assert 1\ndef test_same(): assert 2\n", b=f"def helper(n): return n\n{moves}", c=table)
    commit(
        a=f"import os\ndef test_it(): assert 4\ndef test_renamed(): assert 2\nfrom b import helper\n{moves}",
        b="class TestOf:\n    def test_new(self): assert 5\n",
        c=table.replace("[1]", "[1, 3]").replace("7", "8"),
    )
    changed = [
        *("tests/test_a.py::test_it", "tests/test_b.py::TestOf::test_new"),
        *(f"tests/test_c.py::test_{each}" for each in ("row", "of_constant", "of_function", "of_fixture", "more")),
    ]
    assert changed_tests(tmp_path) == changed
    commit(d="")
    assert changed_tests(tmp_path) == []
    for landed, found in (("HEAD", []), ("HEAD~2", changed)):
        subprocess.run(["git", "update-ref", "refs/remotes/origin/main", landed], cwd=tmp_path, check=True)
        assert changed_tests(tmp_path) == found
