"""Which tests were flakes, on which commits: a file in the user's cache folder, which runs in all clones share."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from rmqio.local.fetch import cache_dir


def noted(tests: Collection[str], commit: str | None, file: Path | None = None) -> dict[str, str]:
    """Adds flakes to the file. Returns, of those that are in it, the last commit before and its day."""
    if not tests:
        return {}
    file = file or cache_dir() / "flakes.jsonl"
    today = datetime.now(UTC).date().isoformat()
    before: dict[str, str] = {}
    try:
        text = file.read_text(errors="replace") if file.exists() else ""
        odd = []
        for line in text.splitlines():
            if each := _read(line):
                before |= each
            else:
                odd.append(line)
        if odd:
            print(f"{file}: {len(odd)} lines are no flakes, the first is {odd[0][:100]!r}")
        lines = [json.dumps({"test": each, "commit": commit or "no commit", "date": today}) for each in tests]
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as opened:
            # What a killed process has written may have no end.
            opened.write("".join(["\n" if text and not text.endswith("\n") else "", *(f"{line}\n" for line in lines)]))
    except OSError as error:
        print(f"flakes cannot be noted: {error}")
    return {test: before[test] for test in tests if test in before}


def _read(line: str) -> dict[str, str]:
    with contextlib.suppress(ValueError, RecursionError):
        match json.loads(line):
            case {"test": str(test), "commit": str(commit), "date": str(date)}:
                return {test: f"{commit[:8]} ({date})"}
    return {}
