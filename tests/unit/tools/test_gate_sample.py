"""The sample of unit tests that the gate runs has the code that their parameters tell apart."""

from __future__ import annotations

import subprocess
import sys

from tests.gate.selection import OTHER_CODE, SAMPLED, chosen
from tests.helpers.imports import ROOT

JOINS = "tests/unit/sql/runtime/joins/test_joins.py::test_interval_joins"


def test_the_first_case_of_each_parameter_that_is_other_code_is_in_the_sample() -> None:
    tests = [f"{JOINS}[a - {b}-{kind}]" for b in "bc" for kind in ("JOIN", "LEFT JOIN", "RIGHT JOIN", "JOIN x")]
    assert chosen("unit", {test: [] for test in tests}) == {*tests[:3], tests[-1]}


def test_parameters_that_are_other_code_are_there() -> None:
    files = [f"tests/{file}" for file in OTHER_CODE]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *files]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    cases = [line for line in found.stdout.splitlines() if line.startswith("tests/")]
    assert cases, found.stdout + found.stderr
    for file, names in OTHER_CODE.items():
        sampled = [case for case in cases if case.removeprefix("tests/").startswith(SAMPLED) and file in case]
        for name in names:
            only = [case for case in sampled if f"-{name}-" in f"-{case.partition('[')[2].removesuffix(']')}-"]
            assert only, (file, name)
