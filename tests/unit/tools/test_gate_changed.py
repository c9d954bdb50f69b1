"""Which tests a change is about: those that do something else, by what they use of their file."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.gate.changed import changed_tests

GIT = ("git", "-c", "user.name=x", "-c", "user.email=x")
_IT = "def test_it(): assert 1\n"
_OF_IT: Any = ["test_it"]
_CLASS = "class TestOf:\n    def test_it(self): assert 1\n    def test_other(self): assert 2\n    "
_OF_CLASS: Any = ["TestOf::test_it", "TestOf::test_other"]
_LAB = "def test_it(lab): assert 1\ndef test_other(): assert 1\n"
USES: dict[str, tuple[str, list[str]]] = {
    "its body": ("def test_it(): assert 7\ndef test_other(): assert 1\n", _OF_IT),
    "its decorator": ("@mark.parametrize('n', [7])\nasync def test_it(n): assert n\n", _OF_IT),
    "arguments": ("def test_it(n=7): assert n\n", _OF_IT),
    "a table": ("BASE = [7]\nROWS: Any = [*BASE, 2]\n@mark(ROWS)\ndef test_it(row): assert row\n", _OF_IT),
    "a tuple": ("A, (B, *C) = 1, (7, 3)\ndef test_it(): assert C\ndef test_other(): assert D\n", _OF_IT),
    "a loop": ("for each in [7]: A[each] = 1\ndef test_it(): assert A\n", _OF_IT),
    "a call": ("A = []\nA.append(7)\ndef test_it(): assert A\n", _OF_IT),
    "a sum": ("A = 1\nA += 7\ndef test_it(): assert A\n", _OF_IT),
    "an item": ("A = {}\nA['n'] = 7\ndef test_it(): assert A\n", _OF_IT),
    "a helper": ("N = 7\ndef made(): return N\ndef test_it(): assert made()\ndef test_other(): assert 1\n", _OF_IT),
    "a helper in a branch": ("if X:\n    def made(): return 7\ndef test_it(): assert made()\n", _OF_IT),
    "a class": ("class Made:\n    def n(self): return 7\ndef test_it(): assert Made().n()\n", _OF_IT),
    "a fixture": (f"def made(): return 7\n@fixture\ndef lab(): return made()\n{_LAB}", _OF_IT),
    "a fixture with another name": (f"@fixture(name='lab')\ndef _lab(): yield 7\n{_LAB}", _OF_IT),
    "a fixture that a mark names": ("@fixture\ndef lab(): yield 7\n@mark.usefixtures('lab')\n" + _IT, _OF_IT),
    "a fixture that all marks name": (
        "pytestmark = [mark.usefixtures('lab')]\n@fixture\ndef lab(): yield 7\n" + _IT,
        _OF_IT,
    ),
    "a fixture that is asked for": (
        "@fixture\ndef lab(): yield 7\ndef test_it(request): request.getfixturevalue('lab')\n",
        _OF_IT,
    ),
    "a fixture that is another one's now": ("@fixture\ndef lab7(): yield 1\ndef test_it(lab8): assert 1\n", _OF_IT),
    "a fixture of all": ("@fixture(autouse=True)\ndef ready(): yield 7\n" + _IT, _OF_IT),
    "what a fixture of all uses": ("N = 7\n@fixture(autouse=True)\ndef ready(): yield N\n" + _IT, _OF_IT),
    "pytestmark": ("pytestmark = mark.timeout(7)\n" + _IT, _OF_IT),
    "setup_function": ("def setup_function(): print(7)\n" + _IT, _OF_IT),
    "pytest_generate_tests": ("def pytest_generate_tests(metafunc): metafunc.do([7])\n" + _IT, _OF_IT),
    "its class": (f"{_CLASS}def made(self): return 7\n", _OF_CLASS),
    "what its class uses": (f"N = 7\n{_CLASS}def made(self): return N\n{_IT}", _OF_CLASS),
    "another test of its class": (_CLASS.replace("1", "7") + "pass\n", ["TestOf::test_it"]),
    "a mark of its class": (f"@mark.timeout(7)\n{_CLASS}pass\n", _OF_CLASS),
    "the base of its class": (f"class Base:\n    COUNT = 7\n{_CLASS.replace(':', '(Base):', 1)}pass\n", _OF_CLASS),
    "its outer class": (
        "class TestOut:\n    N = 7\n    class TestOf:\n        def test_it(self): assert 1\n",
        ["TestOut::TestOf::test_it"],
    ),
    "nothing of its file": ("N = 7\nimport a7\ndef made(): return 7\n" + _IT, []),
    "an import in a branch": ("if TYPE_CHECKING:\n    from a7 import made\ndef test_it(): made()\n", []),
    "another coding": ("# coding: latin-1\ndef test_it(): assert '\udce7' != 7\ndef test_other(): assert 1\n", _OF_IT),
    "a file that cannot be read": ("def test_it(:\n    7\n", []),
}
"""What a test uses: its file, and which tests are changed if each 7 is an 8."""


@pytest.fixture(scope="module")
def changed_by_use(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("root")
    subprocess.run([*GIT, "init", "-q"], cwd=root, check=True)
    for number in "78":
        for at, (file, _) in enumerate(USES.values()):
            folder = root / "tests" / f"\xfc{at}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "conftest.py").write_text(f"@fixture(autouse=True)\ndef n(): return {number}\n")
            text = file.replace("7", number).encode(errors="surrogateescape")
            (folder / "test_it.py").write_bytes(text)
        for command in (["add", "-A"], ["commit", "-qm", "x"]):
            subprocess.run([*GIT, *command], cwd=root, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RMQIO_BASE", raising=False)
        return changed_tests(root)


@pytest.mark.parametrize("use", USES)
def test_a_test_is_changed_with_what_it_uses(use: str, changed_by_use: list[str]) -> None:
    """Of its own file. The name of the folder is not ASCII."""
    file = f"tests/\xfc{[*USES].index(use)}/test_it.py::"
    assert [each.removeprefix(file) for each in changed_by_use if each.startswith(file)] == USES[use][1]


def test_what_is_renamed_or_moved_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RMQIO_BASE", raising=False)  # of the run that this is a test of

    def commit(**files: str) -> None:
        for name, text in files.items():
            (tmp_path / "tests" / f"test_{name}.py").write_text(text)
        for command in (["add", "-A"], ["commit", "-qm", "x"]):
            subprocess.run([*GIT, *command], cwd=tmp_path, check=True)

    (tmp_path / "tests").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert changed_tests(tmp_path) == []  # there is no commit before
    moves = "def test_moves(): assert helper(3)\n"
    rows = "@mark([{}])\ndef test_more(row): assert row\n@mark([2])\ndef test_other(row): assert row\n"
    row = "@mark(ROWS)\ndef test_row(row): assert row\n"
    commit(
        a="def test_it(): assert 1\ndef test_same(): assert 2\n",
        b=f"def helper(n): return n\n{moves}",
        c=rows.format(1),
        d=f"ROWS = [1]\n{row}",
        e=f"ROWS = [1, 3]\n{row}",
    )
    commit(
        a=f"import os\ndef test_it(): assert 4\ndef test_renamed(): assert 2\nfrom b import helper\n{moves}",
        b="class TestOf:\n    def test_new(self): assert 5\n",
        c=rows.format("1, 3"),
        d=f"ROWS = [1, 3]\n{row}",  # as in another file
        e=f"from d import ROWS\n{row}",
    )
    changed = [
        f"tests/test_{each}"
        for each in ("a.py::test_it", "b.py::TestOf::test_new", "c.py::test_more", "d.py::test_row")
    ]
    assert changed_tests(tmp_path) == changed
    commit(f="")
    assert changed_tests(tmp_path) == []
    for landed, found in (("HEAD", []), ("HEAD~2", changed)):
        subprocess.run(["git", "update-ref", "refs/remotes/origin/main", landed], cwd=tmp_path, check=True)
        assert changed_tests(tmp_path) == found
