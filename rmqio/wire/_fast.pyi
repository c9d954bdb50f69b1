from collections.abc import Sequence

from rmqio.model import Message, Record

def decode_usual(
    data: bytes, position: int, records: list[Record], broker: str, topic: str | None, check_crc: bool, /
) -> int: ...
def encode_usual(
    messages: Sequence[Message], ids: Sequence[str], begin: int, max_messages: int, max_bytes: int, /
) -> tuple[bytes, int]: ...
