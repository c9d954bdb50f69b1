"""The other end of `bench.common.process.Worker`, which runs this with a module: a call a line, an answer a line."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback


def main(module_name: str) -> None:
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # what others print must not get between the answers
        module = importlib.import_module(module_name)
        print(json.dumps({"ready": sys.version.split()[0]}), file=answers, flush=True)
        for line in sys.stdin:
            call = json.loads(line)
            try:
                answer = getattr(module, call["function"])(**call["arguments"])
            except Exception as error:  # noqa: BLE001  # whatever it is, the benchmark has to say it
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)
    sys.stderr.flush()
    os._exit(0)  # an endless pipeline of `bench.client.endless` would keep the process alive


if __name__ == "__main__":
    main(sys.argv[1])
