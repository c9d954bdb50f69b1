"""Headers of requests that differ in a few fields only: written once, with holes for those."""

from __future__ import annotations

from collections.abc import Mapping

from rmqio.wire.command import Command, encode_header


def header_with_holes(command: Command, holes: Mapping[str, bytes]) -> bytes:
    """A command's header, to be filled with `%`: first its opaque, then a value for each of these fields.

    Args:
      command: what it has for those fields is of no matter.
      holes: field to the format of its JSON value.
    """
    # The holes come before all that a user wrote, so that the first place that looks like one is one.
    ext = dict.fromkeys(holes, "") | {name: value for name, value in command.ext.items() if name not in holes}
    header = encode_header(Command(command.code, ext)).replace(b"%", b"%%")
    header = header.replace(b'"opaque":0', b'"opaque":%d', 1)
    for name, hole in holes.items():
        header = header.replace(f'"{name}":""'.encode(), f'"{name}":'.encode() + hole, 1)
    return header


def content_with_holes(command: Command, holes: Mapping[str, bytes]) -> bytes:
    """What is signed of such a header, to be filled with `%`: a value for each hole, by the order of their names."""
    parts = []
    for name in sorted({*command.ext, *holes}):
        if not name[:1].islower():
            raise AssertionError(f"field {name!r} would not come after those that a signature adds")
        hole = holes.get(name)
        parts.append(command.ext[name].encode("utf-8", "surrogatepass").replace(b"%", b"%%") if hole is None else hole)
    return b"".join(parts)
