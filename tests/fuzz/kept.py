"""The corpus: inputs that together go everywhere where the fuzzer has been, kept in `corpus/<target>`, small."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "corpus"
FOUND: Final = Path(__file__).parent / "found"
"""Inputs that a run has found and nobody has kept: untracked, and of this machine only."""
MAX_FILES: Final = 25
"""The most files of a target."""
MAX_FILE_BYTES: Final = 4096
_OURS: Final = str(Path(__file__).parents[2] / "rmqio")
_INTERESTING: Final = (0, 1, 2, 0x7F, 0x80, 0xFF, *b'"{}[]:,\\')


def load(target: str, folder: Path | None = None) -> list[bytes]:
    """The inputs that a folder (None: the corpus) keeps of a target, in the order of their names."""
    return [path.read_bytes() for path in sorted(((folder or FOLDER) / target).glob("*")) if path.is_file()]


def keep(target: str, inputs: Iterable[bytes], folder: Path) -> list[Path]:
    """Replaces what a folder keeps of a target. Files are named by their content."""
    folder = folder / target
    folder.mkdir(parents=True, exist_ok=True)
    paths = {folder / hashlib.sha256(data).hexdigest()[:16]: data for data in inputs}
    for path in folder.iterdir():
        if path not in paths:
            path.unlink()
    for path, data in paths.items():
        path.write_bytes(data)
    return sorted(paths)


def minimised(call: Callable[[bytes], None], inputs: Iterable[bytes]) -> list[bytes]:
    """A few inputs that go, one or the other, along every pair of lines of `rmqio` that all go along.

    Greedy: the input that adds most, again and again. Then the smallest of the others, which told the fuzzer something
    that lines do not show.
    """
    found = {data: _ways(call, data) for data in sorted(inputs, key=len) if len(data) <= MAX_FILE_BYTES}
    chosen: list[bytes] = []
    seen: set[object] = set()
    while len(chosen) < MAX_FILES and found:
        best = max(found, key=lambda data: (len(found[data] - seen), -len(data)))
        seen |= found.pop(best)
        chosen.append(best)
    return chosen


def _ways(call: Callable[[bytes], None], data: bytes) -> set[object]:
    """Pairs of lines, one after the other, in the same frame."""
    ways: set[object] = set()

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        code, before = frame.f_code, 0

        def follow(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal before
            what = (code, before, frame.f_lineno, argument[0].__name__ if event == "exception" else event)
            ways.add(what)
            before = frame.f_lineno
            return follow

        return follow

    sys.settrace(enter)
    try:
        call(data)
    finally:
        sys.settrace(None)
    return ways


def mutated(data: bytes, others: list[bytes], choose: random.Random) -> bytes:
    """An input with some bytes changed, taken away, doubled, or replaced by some of another input."""
    changed = bytearray(data)
    for _ in range(choose.randint(1, 4)):
        at, size = choose.randrange(len(changed) + 1), choose.randint(1, 8)
        match choose.randrange(5):
            case 0 if at < len(changed):
                changed[at] = choose.choice(_INTERESTING)
            case 1 if at < len(changed):
                changed[at] ^= 1 << choose.randrange(8)
            case 2:
                del changed[at : at + size]
            case 3:
                changed[at:at] = changed[at : at + size]
            case _:
                other = choose.choice(others)
                begin = choose.randrange(len(other) + 1)
                changed[at : at + choose.choice((0, size))] = other[begin : begin + choose.choice((size, 200))]
    return bytes(changed)
