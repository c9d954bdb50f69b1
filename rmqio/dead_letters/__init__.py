"""Dead letters: the form of one, and how they are sent back. Needs no Beam."""

from __future__ import annotations

from rmqio.dead_letters.letters import DeadLetter, Failed, letter_id, make_letter, read_letter

__all__ = ["DeadLetter", "Failed", "letter_id", "make_letter", "read_letter"]
