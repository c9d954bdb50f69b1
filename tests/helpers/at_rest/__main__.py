"""Writes what rmqio leaves at rest, by the code of this folder: `python -m tests.helpers.at_rest`.

Only for a format that has changed on purpose, which needs another version, and for what is new: the data are those of
the code before, and `tests/unit/structure/test_things_at_rest.py` goes on from them. What is there and still the same
stays as it is. `--all` writes the rest anew, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.helpers.at_rest import folders, levels, streams
from tests.helpers.at_rest.things import THINGS

DATA: Final = Path(__file__).with_name("data")
FILES: Final = {each: DATA / f"{each}.json" for each in ("things", "folders", "levels")}


def load(name: str) -> dict[str, Any]:
    """Returns what was written: `things`, `folders` or `levels`."""
    found: dict[str, Any] = json.loads(FILES[name].read_text("utf-8")) if FILES[name].exists() else {}
    return found


def as_text(kept: bytes | str) -> str:
    """Returns a thing as JSON has it: bytes as hexadecimal digits, if they are not ASCII."""
    if isinstance(kept, str):
        return kept
    return kept.decode() if kept.isascii() and not kept.startswith(b"0x") else f"0x{kept.hex()}"


def as_bytes(text: str) -> bytes:
    """Returns the bytes of such a text."""
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.at_rest", description=__doc__)
    parser.add_argument("--all", action="store_true", help="write the state of streams and the folders anew, too")
    parser.add_argument("--runner", choices=("spark", "flink"), help="write the state of a stream on it anew, instead")
    arguments = parser.parse_args(argv)
    if arguments.runner:
        streams.write(arguments.runner, DATA / f"{arguments.runner}.tar.xz")
        return 0
    made: dict[str, dict[str, Any]] = {
        "things": {name: as_text(each.write(each.value)) for name, each in THINGS.items()},
        "folders": dict.fromkeys(folders.FOLDERS),
        "levels": dict.fromkeys(levels.STREAMS),
    }
    for kind, found in made.items():
        before = {} if arguments.all else load(kind)
        for name in found:
            if kind == "folders":
                found[name] = before.get(name) or {
                    path: as_text(content) for path, content in folders.written(name).items()
                }
            elif kind == "levels":
                found[name] = before.get(name) or levels.written(name)
        DATA.mkdir(exist_ok=True)
        FILES[kind].write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
