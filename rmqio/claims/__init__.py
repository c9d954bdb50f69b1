"""Claim checks: a big body goes to a file system, and its message carries a reference."""

from __future__ import annotations

from rmqio.claims.check import ClaimCheck
from rmqio.claims.cleaning import Cleaned, clean

__all__ = ["ClaimCheck", "Cleaned", "clean"]
