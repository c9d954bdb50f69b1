"""Fuses DoFns into one call, without Beam's hand-over between them."""
