"""Planted faults as patches that `git apply` takes. It imports nothing that has to be installed.

A patch begins with the fault in one sentence, and then has lines `name: value`:

- `lane`: the job of the gate that should see it.
- `twin`: the file in C that the patch changes, too, because production runs that one.
- `python-only`: why no code in C goes past the change.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final, NamedTuple

PATCHES: Final = Path(__file__).parent
TEST: Final = "tests/unit/tools/test_mutants.py"
"""It looks whether the patches apply, which they do not once one has been applied."""
VERDICT: Final = "build/mutants/job/verdict.json"
"""Below the root of the clone: what a run of a job says of the fault."""
_TWINS: Final = ("rmqio/wire/", "rmqio/serde/", "rmqio/enrich/table/")
"""Folders with functions in C that stand for Python's."""
_LINE: Final = re.compile(r"^([a-z-]+): (.+)$", re.MULTILINE)


class Mutant(NamedTuple):
    """A planted fault."""

    file: Path
    fault: str
    header: dict[str, str]
    changed: tuple[str, ...]
    """The files that it changes."""
    digest: str

    @property
    def number(self) -> str:
        return self.file.name[:2]

    @property
    def lane(self) -> str:
        return self.header["lane"]

    @property
    def lacks(self) -> str:
        """What its lines do not say, or the patch does not do: "" if all is there."""
        twin = self.header.get("twin")
        if "lane" not in self.header:
            return "no lane"
        if not self.changed:
            return "it changes nothing"
        if twin is not None and (twin not in self.changed or not twin.endswith((".c", ".h"))):
            return f"it does not change {twin}, or that is not in C"
        if twin is None and "python-only" not in self.header and any(each.startswith(_TWINS) for each in self.changed):
            return "neither the twin in C, nor why no code in C goes past it"
        return ""


def mutants() -> list[Mutant]:
    """Returns all planted faults, by number."""
    return [_read(file) for file in sorted(PATCHES.glob("*.patch"))]


def _read(file: Path) -> Mutant:
    text = file.read_text()
    fault, *lines = text.partition("\n\n")[0].splitlines()
    header = dict(_LINE.findall("\n".join(lines)))
    changed = tuple(re.findall(r"^\+\+\+ b/(.+)$", text, re.MULTILINE))
    return Mutant(file, fault, header, changed, hashlib.sha256(text.encode()).hexdigest())
