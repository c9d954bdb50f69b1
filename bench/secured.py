"""What signatures and TLS cost: our client plain, signed, with TLS, and with both, on one broker, side by side.

python -m bench.secured [--messages 300000] [--sync-messages 10000] [--repeats 5] [--sizes 100,1024] [--quick]

The broker takes all four: it speaks TLS beside plain text (with a certificate that it makes itself, so the client
verifies nothing here; verifying costs at the start of a connection only), and looks at no signature, so what is
measured of these is the client's part. Ratios are to plain. Cases, repeats and checks are those of `python -m bench`:
`pull`, `send` in batches, `sync` one at a time. Exit status: 0, or 1 when the sides did not do the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from bench.config import BROKER_CONFIG, BROKER_HEAP_MB, Plan
from bench.lab import Lab, say
from bench.report import BUSY_WARNING, Report, table
from bench.rows import Row
from bench.tally import BenchError, Tally, require_equal
from rmqio.local import LocalRocketMQ

PLAIN: Final = "plain"
SIDES: Final = (PLAIN, "signed", "tls", "tls and signed")
CASES: Final = ("pull", "send", "sync")


class _Lab(Lab):
    """Without Java, with TLS."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqio-bench-")))
            self.credentials = self.folder / "credentials"
            self.credentials.write_text("accessKey=bench\nsecretKey=bench-secret\n")
            self.credentials.chmod(0o600)
            say("starting RocketMQ ...")
            self.broker = stack.enter_context(
                LocalRocketMQ(broker_heap_mb=BROKER_HEAP_MB, broker_config=BROKER_CONFIG, tls=True)
            )
            self.name_server = self.broker.name_server
            self._stack = stack.pop_all()
        return self

    def security(self, side: str) -> dict[str, Any]:
        """Arguments of `bench.ours`."""
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
    small = Plan(messages=300_000, sync_messages=10_000, repeats=5, batch=100)
    parser = argparse.ArgumentParser(prog="python -m bench.secured", description=(__doc__ or "").partition("\n")[0])
    names: dict[str, Callable[[str], Any]] = {
        "messages": int, "sync_messages": int, "repeats": int, "warm_ups": int, "batch": int, "in_flight": int,
    }  # fmt: skip
    for name, kind in names.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=f"{getattr(small, name):,} by default")
    parser.add_argument("--sizes", default="100,1024", help="of the bodies, in bytes; 100,1024 by default")
    parser.add_argument("--quick", action="store_true", help="small and short: shows that it works, gives no figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    given = parser.parse_args(arguments)
    plan = replace(small, sizes=tuple(int(size) for size in given.sizes.split(",")))
    if given.quick:
        plan = replace(plan, messages=10_000, sync_messages=500, repeats=2, warm_ups=1)
    plan = replace(plan, **{name: getattr(given, name) for name in names if getattr(given, name) is not None})
    report = Report(plan.describe(), round(os.getloadavg()[0], 1))
    try:
        with _Lab(plan) as lab:
            for size in plan.sizes:
                report.rows += compare(lab, size)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(table(report.rows))
    if given.json:
        report.write_json(given.json)
    if report.is_busy:
        print(BUSY_WARNING.format(report.load_at_start).strip("*"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
