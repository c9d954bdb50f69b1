"""Dead letters: their form, and how they are sent back. Does not need Beam."""

from __future__ import annotations

from rmqio.dead_letters.letters import DeadLetter, Failed, letter_id, make_letter, read_letter

__all__ = ["DeadLetter", "Failed", "letter_id", "make_letter", "read_letter"]
