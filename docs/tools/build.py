"""Builds the site into build/site, with warnings as errors, and checks its links: `make docs`.

If it fails, the last lines say why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from docs.tools.links import broken_links
from docs.tools.reasons import plain, reasons

ROOT: Final = Path(__file__).parents[2]
SITE: Final = ROOT / "build" / "site"


def main() -> int:
    """Returns the exit status."""
    shutil.rmtree(SITE, ignore_errors=True)
    # Signatures are formatted by ruff, which is beside this Python.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    built = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    shutil.rmtree(ROOT / ".cache", ignore_errors=True)  # Zensical's; it would not notice a change of a docstring
    if whys := reasons(built.stdout, built.returncode):
        print(plain(built.stdout), file=sys.stderr)
        return _failed(whys)
    pages, links, broken = broken_links(SITE)
    print(f"build/site: {pages} pages, {links:,} internal links, {len(broken)} broken", flush=True)
    return _failed([f"build/site/{each}" for each in broken]) if broken else 0


def _failed(whys: list[str]) -> int:
    """Prints the reasons, as the last lines, and returns the exit status."""
    for why in whys:
        print(f"make docs: {why}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
