"""The command: `python -m tests.chaos [--runner direct|spark|flink] --minutes 10 [--seed N]`."""

from __future__ import annotations

import rmqio  # isort: skip  # noqa: F401 - before Beam, to silence a warning that importing it logs

import argparse
import functools
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.chaos import stream
from tests.chaos.direct import Direct
from tests.chaos.run import Chaos
from tests.chaos.subject import Subject

_SUBJECTS: dict[str, Callable[[], Subject]] = {"direct": Direct, "spark": stream.spark, "flink": stream.flink}


def main() -> int:
    """0: nothing lost. 1: something was, or did not work; ledgers and logs are kept. 130: interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Random faults, and what they cost.")
    parser.add_argument("--runner", choices=_SUBJECTS, default="direct", help="what the pipelines run on")
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults; starting and draining come on top")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="default: by chance")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what runs is in sessions of its own: it must be ended
    folder = Path(tempfile.mkdtemp(prefix="rmqio-chaos-"))
    say = functools.partial(print, flush=True)
    say(f"--runner={arguments.runner} --seed={arguments.seed}; ledgers and logs in {folder}")
    try:
        with Chaos(arguments.seed, folder, _SUBJECTS[arguments.runner](), say) as chaos:
            chaos.rage(arguments.minutes * 60)
            report = chaos.settle()
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BaseException:
        say(f"FAILED: --runner={arguments.runner} --seed={arguments.seed}; ledgers and logs in {folder}")
        raise
    say(str(report))
    if not report.is_good:
        say(f"again: --runner={arguments.runner} --seed={arguments.seed}; ledgers and logs in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
