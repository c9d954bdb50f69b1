"""Differences from Flink that have a reason: `differences.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.helpers.oracles.flink import Difference


class Entry(NamedTuple):
    """Differences of one reason. The texts are regular expressions, but for the reason and the phrase."""

    form: str
    differs: str
    reason: str
    says: str = ""
    given: str = ""
    phrase: str = ""
    """Words of the page, as they stand there."""

    def explains(self, difference: Difference) -> bool:
        """Tells whether the difference is one of these."""
        return bool(
            re.fullmatch(_TYPES.sub(lambda found: _NAMED[found[0]], self.form), difference.form)
            and re.fullmatch(self.differs, difference.kind)
            and re.search(self.says, difference.detail)
            and re.search(self.given, difference.given)
        )


_NAMED: Final = {"<text>": r"(?:STRING|(?:VAR)?CHAR\(\d\))"}
_TYPES: Final = re.compile("|".join(_NAMED))
_FILE: Final = tomllib.loads(Path(__file__).with_name("differences.toml").read_text("utf-8"))
CALLS: Final = tuple(Entry(**each) for each in _FILE["call"])
QUERIES: Final = tuple(Entry(**each) for each in _FILE["query"])


def unexplained(entries: Sequence[Entry], differences: Iterable[Difference]) -> list[Difference]:
    """Returns the differences that have no reason."""
    return [each for each in differences if not any(entry.explains(each) for entry in entries)]


def idle(entries: Sequence[Entry], differences: Sequence[Difference]) -> list[Entry]:
    """Returns the entries that explain nothing."""
    return [entry for entry in entries if not any(map(entry.explains, differences))]
