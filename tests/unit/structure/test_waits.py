"""Tests wait by `until` of tests/helpers/waiting.py, which tells what is wrong from what says nothing.

Limits of other calls grow with it on a busy machine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.helpers.compared import comparisons
from tests.helpers.imports import ROOT

_SLEEPS = {"time.sleep", "asyncio.sleep", "sleep"}
_WITH_LIMIT = {"awaitTermination", "flush", "join", "result", "settimeout", "wait"}
"""Methods with a limit as their only argument."""
_LIMIT_AT = {
    "acquire": 1,
    "asyncio.wait_for": 1,
    "communicate": 1,
    "create_connection": 1,
    "select.select": 3,
    "Timer": 0,
    "urlopen": 2,
}
"""Where the limit of other calls is, if it has no name."""
_WAITS = {"until", "until_by", "until_up", "wait_until"}
_SHORT_S, _MILLISECONDS = 4, 1_000
_CLOCKED = ("unit/", "helpers/client/")
"""Readers there have a clock that they move themselves."""
_ELSEWHERE = ("gate", "chaos", "mutants")
"""They run tests, or run for a time that is given."""


def own_waits(tree: ast.AST, *, polls: bool = True) -> Iterator[int]:
    """Yields the lines of loops that sleep until something holds: those that have a condition, or leave the loop.

    A loop over numbers has none, so it waits if it leaves. One that waits for an event again and again does so, too,
    and one that reads lines of a program until one decides. A queue that is asked with a limit waits without a loop.
    `polls`: so does one that waits for a reader, which takes no time on a clock of the test's own.
    """
    for loop in ast.walk(tree):
        if isinstance(loop, ast.Call) and _asks_queue(loop):
            yield loop.lineno
        elif isinstance(loop, ast.While | ast.For | ast.AsyncFor):
            inside = [node for part in loop.body for node in ast.walk(part)]
            sleeps = any(isinstance(node, ast.Call) and _name(node.func) in _SLEEPS for node in inside)
            leaves = any(isinstance(node, ast.Break | ast.Return | ast.Raise) for node in inside)
            has_condition = isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant)
            sleeps = sleeps or (polls and any(map(_is_poll, inside)))
            reads = any(map(_reads, ast.walk(loop)))
            leaves = leaves or (reads and any(isinstance(node, ast.Assert) for node in inside))
            if ((sleeps or reads) and (leaves or has_condition)) or (isinstance(loop, ast.While) and _waits(loop.test)):
                yield loop.lineno


def untold(tree: ast.AST) -> Iterator[int]:
    """Yields the lines of waits for a function of this file that compares, without details.

    A wait for a lambda tells what it compares: tests/helpers/compared.py.
    """
    waits = {
        call: {each.id for each in _conditions(call) if isinstance(each, ast.Name)}
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and _name(call.func).rpartition(".")[2] in _WAITS
        and _name(call.func) != "ready.wait_until"  # of the library
        and not {each.arg for each in call.keywords} & {"details", None}
    }
    if not any(waits.values()):
        return
    comparing = {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value is not None and any(comparisons(node.value))
    }
    yield from (call.lineno for call, names in waits.items() if names & comparing)


def _conditions(wait: ast.Call) -> list[ast.expr]:
    """Returns the arguments, and those of `partial`: one of them is the condition."""
    return [each for given in wait.args for each in (given, *(given.args if isinstance(given, ast.Call) else ()))]


def _is_poll(node: ast.AST) -> bool:
    """Whether it waits for a reader: `client.wait([reader], 1_000)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "wait"
        and isinstance(next(iter(node.args), None), ast.List)
    )


def _reads(node: ast.AST) -> bool:
    """Whether it reads a line of a program: `process.stdout.readline()`, `for line in process.stdout`."""
    match node:
        case ast.Call(ast.Attribute(attr="readline")):
            return True
        case ast.For(iter=ast.Attribute(attr="stdout" | "stderr")):
            return True
    return False


def _asks_queue(call: ast.Call) -> bool:
    """Whether it waits for a queue: `lines.get(timeout=60)`."""
    return _name(call.func).endswith(".get") and "timeout" in {each.arg for each in call.keywords}


def _waits(condition: ast.expr) -> bool:
    """Whether it calls a method `wait` with a number of seconds."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "wait" and node.args
        for node in ast.walk(condition)
    )


def limits(tree: ast.AST) -> Iterator[int]:
    """Yields the lines of limits in seconds that are numbers or constants, without `at_most`."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            given = [each.value for each in call.keywords if each.arg == "timeout"]
            name = _name(call.func)
            if isinstance(call.func, ast.Attribute) and call.func.attr in _WITH_LIMIT and len(call.args) == 1:
                given += call.args
            at = _LIMIT_AT.get(name, _LIMIT_AT.get(name.rpartition(".")[2], len(call.args)))
            given += call.args[at : at + 1]
            yield from (each.lineno for each in given if _is_long(each))


def _is_long(given: ast.expr) -> bool:
    if isinstance(given, ast.BinOp):
        parts = (given.left, given.right)
        return all(map(_is_number, parts)) and any(map(_is_long, parts))
    if isinstance(given, ast.Constant):
        return isinstance(given.value, int | float) and _SHORT_S <= given.value < _MILLISECONDS
    return _is_number(given)


def _is_number(given: ast.expr) -> bool:
    if isinstance(given, ast.Constant):
        return isinstance(given.value, int | float)
    return _name(given).endswith(("_S", "timeout_s", "limit_s"))


def _name(given: ast.expr) -> str:
    """Returns the name of what is used or called, with what it is an attribute of, if that is a name."""
    match given:
        case ast.Name(name):
            return name
        case ast.Attribute(ast.Name(of), name):
            return f"{of}.{name}"
        case ast.Attribute(_, name):
            return f".{name}"
    return ""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("while not holds():\n    time.sleep(0.1)", True),
        ("while True:\n    if holds():\n        break\n    time.sleep(0.1)", True),
        ("while True:\n    time.sleep(3600)", False),
        ("time.sleep(1)\nuntil(holds, 'it')", False),
        ("while left:\n    clock.sleep(left)", False),
        ("while left:\n    self.wire.clock.sleep(left)", False),
        ("while not holds():\n    sleep(0.1)", True),
        ("async def wait():\n    while not holds():\n        await asyncio.sleep(0.1)", True),
        ("for _ in range(100):\n    if holds():\n        break\n    time.sleep(0.1)", True),
        ("for _ in range(100):\n    if not holds():\n        time.sleep(0.1)\n    else:\n        return", True),
        ("for each in events:\n    send(each)\n    time.sleep(0.1)", False),
        ("while not event.wait(1):\n    look()", True),
        ("while not reader.is_at_end:\n    client.wait([reader], 10)", True),
        ("while True:\n    client.wait([reader], 10)\n    if reader.poll():\n        return", True),
        ("for _ in range(9):\n    if reader.poll():\n        break\n    client.wait([reader], 10)", True),
        ("for each in readers:\n    client.wait([each], 10)", False),
        ("while 'it' not in said.get(timeout=at_most(60)):\n    pass", True),
        ("assert said.get(True, timeout=60) == 'it'", True),
        ("said.get('it', 60)", False),
        ("while read(process.stdout.readline()) == 0:\n    pass", True),
        ("while True:\n    if 'it' in out.readline():\n        break", True),
        ("for number in range(3):\n    assert number == int(out.readline())", True),
        ("for line in process.stdout:\n    if 'it' in line:\n        return", True),
        ("for line in process.stdout:\n    print(line)", False),
        ("assert out.readline() == 'ready'", False),
    ],
)
def test_loops_that_wait_are_found(source: str, found: bool) -> None:
    assert any(own_waits(ast.parse(source))) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("process.wait(30)", True),
        ("process.communicate(timeout=4.0)", True),
        ("subprocess.run(command, timeout=LIMIT_S)", True),
        ("process.wait(at_most(30))", False),
        ("client.wait([reader], 5)", False),
        ("call.result(10_000)", False),
        ("thread.join(1)", False),
        ("program.wait(timeout=None)", False),
        ("subprocess.run(command, timeout=4 * LIMIT_S)", True),
        ("process.wait(2 * 30)", True),
        ("process.wait(2 * at_most(30))", False),
        ("', '.join(['%s'] * 14)", False),
        ("process.wait(limit_s)", True),
        ("process.wait(self.LIMIT_S)", True),
        ("process.communicate(b'1', 30)", True),
        ("process.communicate(b'10')", False),
        ("asyncio.wait_for(answer, 5)", True),
        ("terminal.wait_for('sql>', still_s)", False),
        ("found.get('k', 5)", False),
        ("select.select([file], [], [], 5)", True),
        ("socket.create_connection(address, 5)", True),
        ("threading.Timer(5, end).start()", True),
        ("Timer(45 * patience(), end)", False),
        ("threading.Timer(0.1, send)", False),
    ],
)
def test_limits_that_do_not_grow_are_found(source: str, found: bool) -> None:
    assert any(limits(ast.parse(source))) == found


_HAS = "def has(n=1):\n    return len(it) >= n\n"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"{_HAS}until(has, 'it')", True),
        (f"{_HAS}until(has, 'it', details=it)", False),
        (f"{_HAS}until(has, 'it', **more)", False),
        (f"{_HAS}until(partial(has, 3), 'it')", True),
        (f"{_HAS}job.wait_until(has, 'it', progress=it)", True),
        (f"{_HAS}until_by(query, has, 'it')", True),
        ("until(lambda: len(it) >= 1, 'it')", False),
        ("until(has, 'it')", False),
        ("def has():\n    return bool(left or not it)\nuntil(has, 'it')", True),
        ("def has():\n    return [each for each in it if each == 1]\nuntil(has, 'it')", False),
    ],
)
def test_waits_that_do_not_tell_what_is_missing_are_found(source: str, found: bool) -> None:
    assert any(untold(ast.parse(source))) == found


def test_no_test_has_a_wait_or_a_limit_of_its_own() -> None:
    found = {}
    for path in (ROOT / "tests").rglob("*.py"):
        name = path.relative_to(ROOT / "tests").as_posix()
        if not name.startswith(_ELSEWHERE) and name != "helpers/waiting.py":
            tree = ast.parse(path.read_text())
            found[name] = [*own_waits(tree, polls=not name.startswith(_CLOCKED)), *limits(tree), *untold(tree)]
    assert {name: lines for name, lines in found.items() if lines} == {}
