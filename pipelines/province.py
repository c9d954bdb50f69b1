"""Provinces of addresses: reads {"id", "address"} as JSON, writes {"id", "province"}.

An address begins with its province ("浙江省杭州市西湖区...", also "浙江杭州市...", "中国 浙江省 ..."). Other messages
go to the dead-letter topic; without one, they are left out, counted and logged. Each written message has the unique id
of its source message. Delivery is at least once; with --exactly_once, it is exactly once for every consumer of the sink
topic.

example:
  python pipelines/province.py --name_server=127.0.0.1:9876 \\
    --source_topic=addresses --sink_topic=provinces
"""

from __future__ import annotations

from rmqio.command_line.arguments import parse_group, parse_topic
from rmqio.runners import Program

program = Program(
    __file__,
    __doc__,
    source="address",
    sink="province",
    dead_letters="messages without a province",
    write="Write provinces",
)
program.parser.add_argument(
    "--audit_topic",
    type=parse_topic,
    metavar="TOPIC",
    help="count what is read and what has a province, so that `rmqio audit` finds where a message was lost; must exist",
)
program.parser.add_argument(
    "--exactly_once",
    type=parse_group,
    metavar="GROUP",
    help="write nothing twice: look up in the sink what a failed run has sent, from the offsets of this group on; no"
    " other job may use the group",
)
if __name__ == "__main__":
    program.check()  # before Beam, whose import takes seconds

import argparse
import re
import sys
from operator import itemgetter
from typing import Any, Final

from rmqio import Batch, LookBack, MapRecords, Message, ReadFromRocketMQ, Record, WriteToRocketMQ
from rmqio.audit import Audit
from rmqio.serde import JsonDeserializer, JsonSerializer
from rmqio.transforms import LogFailures
import apache_beam as beam

PROVINCES: Final = """
北京市 天津市 河北省 山西省 内蒙古自治区 辽宁省 吉林省 黑龙江省 上海市 江苏省 浙江省 安徽省 福建省 江西省 山东省
河南省 湖北省 湖南省 广东省 广西壮族自治区 海南省 重庆市 四川省 贵州省 云南省 西藏自治区 陕西省 甘肃省 青海省
宁夏回族自治区 新疆维吾尔自治区 台湾省 香港特别行政区 澳门特别行政区
""".split()  # noqa: SIM905
SHORT: Final = {re.sub("(壮族|回族|维吾尔)?(市|省|自治区|特别行政区)$", "", name): name for name in PROVINCES}
SHORT["内蒙"] = "内蒙古自治区"
# Places of lower levels, and roads all over the country (北京路, 四川北路), have names that begin like a province.
NOT_PROVINCES: Final = ("河北区", "海南区", "海南州", "海南藏族自治州", "河南县", "河南蒙古族自治县")
ROAD: Final = r"[东西南北中]?[一二三四五六七八九十\d]{0,3}(?:路|街|道(?![里外])|巷|胡同|大道|大街)"
GAP: Final = r"[\s,\uff0c\u3001]*"
PATTERN: Final = re.compile(
    f"{GAP}(?:(?:中华人民共和国|中国){GAP})?"
    f"(?:({'|'.join(PROVINCES)})|(?!{'|'.join(NOT_PROVINCES)})({'|'.join(sorted(SHORT, reverse=True))})(?!{ROAD}))"
)
JSON: Final = JsonDeserializer()
TO_JSON: Final = JsonSerializer(key_fields=("id",))

Province = tuple[str, dict[str, Any]]
"""The unique id of the source message, and `{"id": ..., "province": ...}`."""


class BadAddress(ValueError):
    """A message without a province. Its text does not quote the message, which may be private."""


def province_of(address: str) -> str | None:
    """Returns the official name of the province that the address begins with, or None."""
    match = PATTERN.match(address)
    return None if match is None else match[1] or SHORT[match[2]]


def to_province(record: Record) -> Province:
    """Returns the province of one address. Raises `BadAddress`, or `SerdeError` for what is not JSON."""
    value = JSON(record)
    if not isinstance(value, dict):
        raise BadAddress("the message is no object of JSON")
    number, address = value.get("id"), value.get("address")
    if isinstance(number, bool) or not isinstance(number, (int, str)) or str(number).split() != [str(number)]:
        raise BadAddress("id must be a whole number, or text without white space")
    if not isinstance(address, str) or (province := province_of(address)) is None:
        raise BadAddress("address must be text that begins with a province")
    return record.message_id, {"id": number, "province": province}


def to_message(province: Province) -> Message:
    """Returns the message for the sink, whose key is the id."""
    return TO_JSON(province[1])


def build(pipeline: beam.Pipeline, options: argparse.Namespace) -> None:
    """Reads batches, which pass Beam faster than single messages."""
    read = ReadFromRocketMQ(**options.read, batches=True)
    take = MapRecords(to_province, **options.dead_letters)
    if not options.dead_letters:
        read, take = read.with_error_handler(LogFailures()), take.with_error_handler(LogFailures())
    addresses = _audited(pipeline | "Read addresses" >> read, options, "read")
    provinces = _audited(addresses | "Take the province" >> take, options, "provinces")
    exactly_once = None if options.exactly_once is None else LookBack(options.exactly_once)
    write = WriteToRocketMQ(
        **options.write,
        serializer=to_message,
        id_fn=itemgetter(0),
        exactly_once=exactly_once,
        fail_on_error=True,
        with_sent=False,
        batches=True,
    )
    _ = provinces | "Write provinces" >> write


def _audited(batches: beam.PCollection[Batch[Any]], options: argparse.Namespace, hop: str) -> Any:
    if options.audit_topic is None:
        return batches
    return batches | Audit(hop, topic=options.audit_topic, **options.cluster)


if __name__ == "__main__":
    sys.exit(program.run(build))
