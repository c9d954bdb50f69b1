"""Functions for the statements of python-functions.md."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Word(NamedTuple):
    word: str
    length: int


def initials(name: str, separator: str = ".") -> str:
    return "".join(part[0].upper() + separator for part in name.split())


def words(text: str) -> Iterator[Word]:
    for word in text.split():
        yield Word(word, len(word))


class Longest:
    def create_accumulator(self) -> list[str]:
        return []

    def accumulate(self, accumulator: list[str], word: str) -> None:
        accumulator[:] = [max([*accumulator, word], key=len)]

    def merge(self, accumulator: list[str], others: Iterable[list[str]]) -> None:
        for other in others:
            for word in other:
                self.accumulate(accumulator, word)

    def get_value(self, accumulator: list[str]) -> str | None:
        return accumulator[0] if accumulator else None
