"""Thresholds, by binary search, and networks, by a look-up for each length of prefix."""

from __future__ import annotations

import ipaddress
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any, Final

from rmqio.rules.ir import Atom, Kind

_LONGEST_ADDRESS: Final = 64


class Thresholds:
    """Less, at most, greater, at least: with constants that compare with each other."""

    def __init__(self, atoms: Iterable[tuple[int, Atom]]) -> None:
        self._rows: list[tuple[Kind, list[Any], list[int]]] = []
        given = [*atoms]
        for kind in (Kind.LESS, Kind.AT_MOST, Kind.GREATER, Kind.AT_LEAST):
            pairs = sorted(((atom.value, number) for number, atom in given if atom.kind is kind), key=_value)
            if pairs:
                self._rows.append((kind, [value for value, _ in pairs], [number for _, number in pairs]))

    def __bool__(self) -> bool:
        return bool(self._rows)

    def of(self, value: Any) -> list[int]:
        """Returns the numbers of the thresholds that a value meets."""
        found: list[int] = []
        for kind, values, numbers in self._rows:
            if kind is Kind.LESS:
                found += numbers[bisect_right(values, value) :]
            elif kind is Kind.AT_MOST:
                found += numbers[bisect_left(values, value) :]
            elif kind is Kind.GREATER:
                found += numbers[: bisect_left(values, value)]
            else:
                found += numbers[: bisect_right(values, value)]
        return found


class Networks:
    """Networks of IPv4 and IPv6."""

    def __init__(self, atoms: Iterable[tuple[int, Atom]]) -> None:
        self._by_shift: dict[tuple[int, int], dict[int, list[int]]] = {}
        for number, atom in atoms:
            network = ipaddress.ip_network(str(atom.value))
            shift = network.max_prefixlen - network.prefixlen
            table = self._by_shift.setdefault((network.version, shift), {})
            table.setdefault(int(network.network_address) >> shift, []).append(number)

    def __bool__(self) -> bool:
        return bool(self._by_shift)

    def of(self, text: str) -> list[int]:
        """Returns the numbers of the networks that an address is in."""
        if len(text) > _LONGEST_ADDRESS:
            return []
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return []
        whole, version = int(address), address.version
        found: list[int] = []
        for (of_version, shift), table in self._by_shift.items():
            if of_version == version:
                found += table.get(whole >> shift, ())
        return found


def _value(pair: tuple[Any, int]) -> Any:
    return pair[0]
