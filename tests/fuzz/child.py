"""One target under Atheris, in a process of its own: libFuzzer ends the process that it runs in.

`python -m tests.fuzz.child <the C extension as covered.py builds it, or nothing> <target> <libFuzzer's arguments>`
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path


def main() -> None:
    import atheris

    logging.disable()
    library, name, *arguments = sys.argv[1:]
    with atheris.instrument_imports(include=["rmqio.wire", "rmqio.model", "rmqio.serde"]):
        from tests.fuzz import covered

        if library:
            covered.load(Path(library))
        from tests.fuzz.targets import TARGETS
    atheris.Setup([name, *arguments], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
