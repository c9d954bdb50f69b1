"""Measures what signatures and TLS cost: our client plain, signed, with TLS, and with both, on one broker.

python -m bench.client.secured [--messages 300000] [--sync-messages 10000] [--repeats 5] [--sizes 100,1024] [--quick]

The broker accepts all four. It accepts TLS and plain text on one port. It creates its own certificate, so the client
verifies nothing here; a verification would only cost time at the start of a connection. The broker ignores signatures,
so only the client's part of them is measured. Ratios are to plain. Cases, repeats and checks are those of `python -m
bench`: `pull`, `send` in batches, `sync` one at a time. Exit status: 0; 1 if the sides did unequal work.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Self

from bench.client import beside
from bench.client.beside import BareLab
from bench.common.config import Plan
from bench.common.report import say
from bench.common.rows import Row
from bench.common.tally import Tally, require_equal

PLAIN: Final = "plain"
SIDES: Final = (PLAIN, "signed", "tls", "tls and signed")
CASES: Final = ("pull", "send", "sync")


class _Lab(BareLab):
    tls = True

    def __enter__(self) -> Self:
        super().__enter__()
        self.credentials = self.folder / "credentials"
        self.credentials.write_text("accessKey=bench\nsecretKey=bench-secret\n")
        self.credentials.chmod(0o600)
        return self

    def security(self, side: str) -> dict[str, Any]:
        """Arguments of `bench.client.ours`."""
        return {
            "credentials": f"file:{self.credentials}" if "signed" in side else None,
            "tls": "tls" in side,
        }


def _run(lab: _Lab, side: str, case: str, size: int, loaded: str) -> tuple[float, Tally]:
    plan = lab.plan
    if case == "pull":
        answer = lab.call(side, "ours", "pull", topic=loaded, count=plan.messages, **lab.security(side))
        return answer["count"] / answer["seconds"], Tally.from_answer(answer)
    topic = lab.topic(f"{side.replace(' ', '_')}_{case}_{size}")
    before = lab.ends(topic)
    more: dict[str, Any] = {"count": plan.sync_messages}
    if case == "send":
        more = {"count": plan.messages, "batch": plan.batch, "in_flight": plan.in_flight}
    answer = lab.call(side, "ours", case, topic=topic, size=size, **more, **lab.security(side))
    tally = lab.read_back(topic, before, Tally(answer["count"], answer["bytes"]))
    return tally.count / answer["seconds"], tally


def compare(lab: _Lab, size: int) -> list[Row]:
    """Warm-ups, then repeats; the order of the sides is turned round at each. Raises `UnequalWork`."""
    plan = lab.plan
    loaded = lab.topic(f"loaded_{size}")
    lab.call(
        PLAIN, "ours", "send", topic=loaded, size=size,
        count=plan.messages, batch=plan.batch, in_flight=plan.in_flight,
    )  # fmt: skip
    rates: dict[tuple[str, str], list[float]] = {(side, case): [] for side in SIDES for case in CASES}
    for repeat in range(1 - plan.warm_ups, plan.repeats + 1):
        for case in CASES:
            tallies: dict[str, Tally] = {}
            for side in SIDES if repeat % 2 == 0 else reversed(SIDES):
                rate, tallies[side] = _run(lab, side, case, size, loaded)
                if repeat >= 1:
                    rates[side, case].append(rate)
                    say(f"  {size} B, repeat {repeat}: {case}, {side}: {rate:,.0f} msg/s")
            require_equal(f"{case}, {size} B", tallies)
    return [
        Row.ratio_of(case, size, rates[side, case], rates[PLAIN, case], None, f"{side} beside {PLAIN}")
        for case in CASES
        for side in SIDES[1:]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    usual = Plan(messages=300_000, sync_messages=10_000, repeats=5, batch=100)
    quick = replace(usual, messages=10_000, sync_messages=500, repeats=2, warm_ups=1)
    return beside.main(arguments, "secured", __doc__, _Lab, compare, usual=usual, quick=quick)


if __name__ == "__main__":
    sys.exit(main())
