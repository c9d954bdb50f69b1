"""The view on a terminal."""

from __future__ import annotations

from rmqio.watch.terminal.view import View, watch_on_terminal

__all__ = ["View", "watch_on_terminal"]
