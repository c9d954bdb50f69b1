"""Headers of requests that differ in only a few fields: encoded once, with holes for these."""

from __future__ import annotations

from collections.abc import Mapping

from rmqio.wire.command import Command, encode_header


def header_with_holes(command: Command, holes: Mapping[str, bytes]) -> bytes:
    """Return a command's header to fill with `%`: first its opaque, then a value for each of these fields.

    Args:
      command: its values for these fields do not matter.
      holes: maps a field to the format of its JSON value.
    """
    # The holes come before all user input, so that the first match of a hole is a real one.
    ext = dict.fromkeys(holes, "") | {name: value for name, value in command.ext.items() if name not in holes}
    header = encode_header(Command(command.code, ext)).replace(b"%", b"%%")
    header = header.replace(b'"opaque":0', b'"opaque":%d', 1)
    for name, hole in holes.items():
        header = header.replace(f'"{name}":""'.encode(), f'"{name}":'.encode() + hole, 1)
    return header


def content_with_holes(command: Command, holes: Mapping[str, bytes]) -> bytes:
    """Return the signed content of such a header, to fill with `%`: a value for each hole, ordered by name."""
    parts = []
    for name in sorted({*command.ext, *holes}):
        if not name[:1].islower():
            raise AssertionError(f"field {name!r} would not sort after those that a signature adds")
        hole = holes.get(name)
        parts.append(command.ext[name].encode("utf-8", "surrogatepass").replace(b"%", b"%%") if hole is None else hole)
    return b"".join(parts)
