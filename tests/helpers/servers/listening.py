"""The addresses on which a process listens."""

from __future__ import annotations

import os
from pathlib import Path


def listening(pid: int | None) -> set[str]:
    """Returns the addresses on which a process accepts connections, in Linux's hexadecimal form; elsewhere none."""
    folder = Path(f"/proc/{pid}")
    inodes = set()
    for file in folder.glob("fd/*"):
        try:
            inodes.add(os.readlink(file))
        except OSError:
            continue
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        if (folder / "net" / name).exists()
        for line in (folder / "net" / name).read_text().splitlines()[1:]
    ]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


def is_loopback(address: str) -> bool:
    """Returns whether an address is 127.0.0.x, also mapped to IPv6, or ::1. Each 32 bits are in little-endian order."""
    return address.endswith("00007F", 2) or address == "00000000000000000000000001000000"
