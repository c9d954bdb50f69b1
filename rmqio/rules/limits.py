"""Bounds on what rules and events can cost. Rules beyond them are an error that names the rule."""

from __future__ import annotations

from dataclasses import dataclass, fields

from rmqio.errors import LocalError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a rule set and of the work for an event.

    Args:
      max_rules: rules in a set.
      max_atoms: different conditions of all rules together.
      max_pattern_bytes: the length of the constant of a condition.
      max_wildcards: `*` and `?` in a wildcard.
      max_field_names: names in a path of a field.
      max_regex_bytes: the size of one regular expression after compiling.
      max_pattern_parts: of one field, the characters of all regular expressions, with repeats of up to 15 written out,
        and the `*` and `?` of all wildcards. Each takes up to a millisecond to compile.
      max_database_bytes: the size of all patterns of one field after compiling.
      max_value_bytes: what is looked at of a text in an event; the rest is cut off.
      max_values: values of a field that are looked at in an event, members of lists on its path, and pairs of values of
        two fields; of an event, for conditions without a field. The others are left out.
      max_hit_atoms: how many conditions a hit names.
      cache_bytes: what the values that are remembered may take, of all fields together.
    """

    max_rules: int = 100_000
    max_atoms: int = 1_000_000
    max_pattern_bytes: int = 8_192
    max_wildcards: int = 64
    max_field_names: int = 16
    max_regex_bytes: int = 4 << 20
    max_pattern_parts: int = 100_000
    max_database_bytes: int = 256 << 20
    max_value_bytes: int = 65_536
    max_values: int = 10_000
    max_hit_atoms: int = 64
    cache_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "cache_bytes" else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise LocalError(f"{field.name} is {value!r}; it must be a number of at least {least}")
