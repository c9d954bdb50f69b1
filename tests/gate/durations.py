"""How long the tests of a function take: `python -m tests.gate.durations` keeps it, from the last run of the gate.

Which process has which files and the choice for daily use depend on it, no result does. What is not in it counts as
nothing.
"""

from __future__ import annotations

import functools
import json
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Final

_FILE: Final = Path(__file__).with_name("durations.json")
_LEAST_S: Final = 0.05
"""What takes less is not kept."""
_IMPORT_S: Final = 0.05
"""What a file takes without its tests."""


@functools.cache
def known() -> Mapping[str, float]:
    """Returns seconds: of files, by their paths, and of functions, the mean of their tests, by their names.

    A name is such as `tests.unit.test_file.test_function`.
    """
    found: dict[str, float] = json.loads(_FILE.read_text())
    return found


def seconds(node_id: str) -> float:
    """Returns the seconds of a test, by pytest's id."""
    name = node_id.partition("[")[0].replace(".py::", ".").replace("::", ".").replace("/", ".")
    return known().get(name, 0.0)


def shares(files: Iterable[str], count: int) -> list[list[str]]:
    """Returns files in so many lists, whose tests take about as long as those of the others."""
    return balanced({each: known().get(each, 0.0) + _IMPORT_S for each in files}, count)


def balanced(seconds: Mapping[str, float], count: int) -> list[list[str]]:
    """Returns names in so many lists, each with about the same sum of seconds."""
    found: list[list[str]] = [[] for _ in range(count)]
    sums = [0.0] * count
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        least = sums.index(min(sums))
        sums[least] += seconds[name]
        found[least].append(name)
    return found


def main() -> None:
    of_functions = defaultdict(list)
    of_files: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse("build/junit.xml").iter("testcase"):
        classname, took = case.get("classname", ""), float(case.get("time", 0))
        of_functions[f"{classname}.{case.get('name', '').partition('[')[0]}"].append(took)
        path, _, name = classname.partition(".test_")
        of_files[f"{path.replace('.', '/')}/test_{name.partition('.')[0]}.py"] += took
    kept = {name: round(mean, 2) for name, each in sorted(of_functions.items()) if (mean := fmean(each)) >= _LEAST_S}
    kept |= {file: round(took, 2) for file, took in sorted(of_files.items()) if took >= _LEAST_S}
    _FILE.write_text(json.dumps(kept, indent=0) + "\n")
    print(f"{_FILE}: the functions and files of {len(of_functions)} functions that take {_LEAST_S} s or more")


if __name__ == "__main__":
    main()
