"""Beginnings: which of many texts another text begins with, by one binary search."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence


class Beginnings:
    """Texts with numbers.

    All texts that a text begins with stand in order before it, and each begins with the one before. So the nearest text
    before it leads to all of them, by links from each to the longest other one that it begins with.
    """

    def __init__(self, texts: Iterable[tuple[str, int]]) -> None:
        by_text: dict[str, list[int]] = {}
        for text, number in texts:
            by_text.setdefault(text, []).append(number)
        self._texts = sorted(by_text)
        self._numbers = [by_text[text] for text in self._texts]
        self._links: list[int] = []
        open_: list[int] = []
        for at, text in enumerate(self._texts):
            while open_ and not text.startswith(self._texts[open_[-1]]):
                open_.pop()
            self._links.append(open_[-1] if open_ else -1)
            open_.append(at)

    def __bool__(self) -> bool:
        return bool(self._texts)

    def of(self, text: str) -> Sequence[int]:
        """Returns the numbers of all that a text begins with."""
        texts = self._texts
        at = bisect_right(texts, text) - 1
        if at < 0:
            return ()
        links = self._links
        found: list[int] = []
        while at >= 0:
            if text.startswith(texts[at]):
                found += self._numbers[at]
            at = links[at]
        return found
