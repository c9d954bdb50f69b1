"""`python -m rmqio`: the command line, also installed as `rmqio`."""

from __future__ import annotations

import sys

from rmqio.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
