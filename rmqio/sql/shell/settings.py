"""SET in the shell: where a SELECT begins and ends, beside what SET means in every script."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from rmqio.errors import LocalError
from rmqio.sql.errors import Refusal
from rmqio.sql.syntax.statements import Option
from rmqio.start import StartFrom, StartKind, StopAt, StopKind, start_of, stop_of

START: Final = "scan.startup.mode"
STOP: Final = "scan.bounded.mode"
OWN: Final = {
    START: "earliest, latest, group or timestamp:TIME",
    STOP: "unbounded, latest or timestamp:TIME",
}
"""The shell's own settings, and what they can be."""
_STARTS: Final[tuple[StartKind, ...]] = ("earliest", "latest", "group", "timestamp:TIME")
_STOPS: Final[tuple[StopKind, ...]] = ("none", "latest", "timestamp:TIME")


@dataclass(frozen=True, slots=True)
class Scan:
    """The places where tables begin and end in the shell.

    Attributes:
      start: of every table; None: the table's own, and else that of `--start`.
      stop: of every table without `endTime`.
      is_endless: whether SET says that tables do not end.
    """

    start: StartFrom | None = None
    stop: StopAt | None = None
    is_endless: bool = False

    def with_option(self, option: Option) -> Scan:
        """Returns the settings after a SET of one of `OWN`. Raises `Refusal`."""
        key = option.key.lower()
        text = option.value.strip()
        text = text.lower().removesuffix("-offset").removesuffix("-offsets") if ":" not in text else text
        try:
            if key == START:
                found = start_of(text, _STARTS)
                # A group without an offset begins where a SELECT begins.
                return replace(self, start=StartFrom.group_offsets("earliest") if text == "group" else found)
            stop = stop_of("none" if text == "unbounded" else text, _STOPS)
        except LocalError as error:
            reason = f": {error}" if ":" in text else f"; it can be {OWN[key]}"
            raise Refusal(f"{option.key} is {option.value!r}{reason}", option.value_span) from None
        return replace(self, stop=stop, is_endless=stop is None)

    def without(self, key: str) -> Scan:
        """Returns the settings after a RESET of one of `OWN`."""
        return replace(self, start=None) if key == START else replace(self, stop=None, is_endless=False)
