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
        for line in file.read_text(errors="replace").splitlines() if file.exists() else ():
            with contextlib.suppress(ValueError):  # of a process that was killed while it wrote
                each = json.loads(line)
                before[each["test"]] = f"{each['commit'][:8]} ({each['date']})"
        lines = [json.dumps({"test": each, "commit": commit or "no commit", "date": today}) for each in tests]
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as opened:
            opened.write("".join(f"{line}\n" for line in lines))
    except OSError as error:
        print(f"flakes cannot be noted: {error}")
    return {test: before[test] for test in tests if test in before}
