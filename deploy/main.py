"""Runs a module, as `python -m` does. spark-submit takes a file only: `main.py rmqio.pipelines.province --help`."""

import runpy
import sys

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("main.py: give the module to run, such as rmqio.pipelines.province, and its options")
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
