"""How long the tests of a function take: `python -m tests.gate.durations` keeps it, from the last run of the gate.

The order of files and the choice for daily use depend on it, no result does: what is not in it counts as nothing.
"""

from __future__ import annotations

import functools
import json
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

_FILE: Final = Path(__file__).with_name("durations.json")
_LEAST_S: Final = 0.05
"""What takes less is not kept."""


@functools.cache
def known() -> Mapping[str, float]:
    """Returns seconds, the mean of the tests of a function, by its name: `tests.unit.test_file.test_function`."""
    found: dict[str, float] = json.loads(_FILE.read_text())
    return found


def seconds(node_id: str) -> float:
    """Returns the seconds of a test, by pytest's id."""
    name = node_id.partition("[")[0].replace(".py::", ".").replace("::", ".").replace("/", ".")
    return known().get(name, 0.0)


def longest_files_first(node_ids: Sequence[str]) -> list[str]:
    """Returns files, by the seconds of their tests: workers that take the longest first end at about the same time."""
    of_files: dict[str, float] = defaultdict(float)
    for each in node_ids:
        of_files[each.partition("::")[0]] += seconds(each)
    return sorted(of_files, key=lambda file: -of_files[file])


def main() -> None:
    of_functions = defaultdict(list)
    for case in ElementTree.parse("build/junit.xml").iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name', '').partition('[')[0]}"
        of_functions[name].append(float(case.get("time", 0)))
    kept = {name: round(mean, 2) for name, each in sorted(of_functions.items()) if (mean := fmean(each)) >= _LEAST_S}
    _FILE.write_text(json.dumps(kept, indent=0) + "\n")
    print(f"{len(kept)} of {len(of_functions)} functions take {_LEAST_S} s or more: {_FILE}")


if __name__ == "__main__":
    main()
