"""Exact sums of floats: no order of rows changes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def merged_floats(one: list[float], other: list[float]) -> list[float]:
    """Returns few floats whose exact sum is that of all: no order of rows changes a SUM of DOUBLE."""
    partials: list[float] = []
    for value in (*one, *other):
        if value - value != 0:  # NaN, or infinite: nothing else matters
            return [sum(each for each in (*one, *other) if each - each != 0)]
        kept = 0
        for each in partials:
            if abs(value) < abs(each):
                value, each = each, value
            high = value + each
            if high - high != 0:  # too large for one float, though others may make the sum smaller
                return [*one, *other]
            low = each - (high - value)
            if low:
                partials[kept] = low
                kept += 1
            value = high
        partials[kept:] = [value]
    return partials


def exact_sum(partials: Sequence[float]) -> float:
    """Returns the sum, rounded once; infinite if it is too large."""
    if odd := [each for each in partials if each - each != 0]:
        return sum(odd)
    try:
        return math.fsum(partials)
    except OverflowError:
        total = sum(map(Fraction, partials))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
