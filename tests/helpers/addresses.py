"""Synthetic addresses: `python -m tests.helpers.addresses > pipelines/addresses.jsonl` makes the demo's sample.

Provinces, cities and districts are real; everything else is made up. The same count gives the same addresses
everywhere: Python keeps `Random.random` stable, and this module uses nothing else of `random`.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from pipelines.province import SHORT
from rmqio.command_line.parser import Parser
from tests.helpers.programs import ROOT

SAMPLE_SIZE: Final = 3_000
_SEED: Final = 20_240_229
T = TypeVar("T")

# Province: weight (roughly the population in millions), then its cities with their districts. The name of a city that
# is itself a province is empty.
_PLACES: Final[dict[str, tuple[int, dict[str, str]]]] = {
    "北京市": (22, {"": "东城区 西城区 朝阳区 海淀区 丰台区"}),
    "天津市": (14, {"": "和平区 河西区 南开区 河北区 滨海新区"}),
    "河北省": (75, {"石家庄市": "长安区 桥西区", "唐山市": "路南区 路北区", "保定市": "竞秀区 莲池区"}),
    "山西省": (35, {"太原市": "小店区 迎泽区", "大同市": "平城区 云冈区"}),
    "内蒙古自治区": (24, {"呼和浩特市": "新城区 回民区", "包头市": "昆都仑区 青山区", "乌海市": "海南区"}),
    "辽宁省": (43, {"沈阳市": "和平区 沈河区", "大连市": "中山区 西岗区"}),
    "吉林省": (24, {"长春市": "南关区 朝阳区", "吉林市": "昌邑区 船营区"}),
    "黑龙江省": (32, {"哈尔滨市": "道里区 道外区 南岗区", "齐齐哈尔市": "龙沙区"}),
    "上海市": (25, {"": "黄浦区 徐汇区 静安区 浦东新区 杨浦区"}),
    "江苏省": (85, {"南京市": "玄武区 秦淮区", "苏州市": "姑苏区 吴中区", "无锡市": "梁溪区 滨湖区"}),
    "浙江省": (65, {"杭州市": "上城区 西湖区 余杭区", "宁波市": "海曙区 鄞州区", "温州市": "鹿城区 瓯海区"}),
    "安徽省": (61, {"合肥市": "瑶海区 庐阳区", "芜湖市": "镜湖区 鸠江区"}),
    "福建省": (42, {"福州市": "鼓楼区 台江区", "厦门市": "思明区 湖里区"}),
    "江西省": (45, {"南昌市": "东湖区 西湖区", "赣州市": "章贡区 南康区"}),
    "山东省": (101, {"济南市": "历下区 市中区", "青岛市": "市南区 市北区", "烟台市": "芝罘区 福山区"}),
    "河南省": (99, {"郑州市": "中原区 金水区", "洛阳市": "西工区 涧西区", "开封市": "龙亭区 鼓楼区"}),
    "湖北省": (58, {"武汉市": "江岸区 武昌区 洪山区", "宜昌市": "西陵区 伍家岗区"}),
    "湖南省": (66, {"长沙市": "芙蓉区 岳麓区", "株洲市": "荷塘区 芦淞区"}),
    "广东省": (127, {"广州市": "越秀区 天河区", "深圳市": "福田区 南山区", "佛山市": "禅城区 南海区"}),
    "广西壮族自治区": (50, {"南宁市": "兴宁区 青秀区", "桂林市": "秀峰区 象山区"}),
    "海南省": (10, {"海口市": "秀英区 龙华区", "三亚市": "海棠区 吉阳区"}),
    "重庆市": (32, {"": "渝中区 江北区 沙坪坝区 九龙坡区"}),
    "四川省": (84, {"成都市": "锦江区 青羊区 武侯区", "绵阳市": "涪城区 游仙区"}),
    "贵州省": (39, {"贵阳市": "南明区 云岩区", "遵义市": "红花岗区 汇川区"}),
    "云南省": (47, {"昆明市": "五华区 盘龙区", "大理白族自治州": "大理市"}),
    "西藏自治区": (4, {"拉萨市": "城关区 堆龙德庆区", "日喀则市": "桑珠孜区"}),
    "陕西省": (40, {"西安市": "新城区 碑林区 雁塔区", "咸阳市": "秦都区 渭城区"}),
    "甘肃省": (25, {"兰州市": "城关区 七里河区", "天水市": "秦州区 麦积区"}),
    "青海省": (6, {"西宁市": "城东区 城中区", "海南藏族自治州": "共和县"}),
    "宁夏回族自治区": (7, {"银川市": "兴庆区 金凤区", "吴忠市": "利通区"}),
    "新疆维吾尔自治区": (26, {"乌鲁木齐市": "天山区 沙依巴克区", "喀什地区": "喀什市"}),
    "台湾省": (23, {"台北市": "中正区 大安区", "高雄市": "新兴区 前金区"}),
    "香港特别行政区": (7, {"": "中西区 油尖旺区 沙田区"}),
    "澳门特别行政区": (1, {"": "花地玛堂区 大堂区"}),
}

_STREETS: Final = "人民路 中山路 解放路 建设路 北京路 上海路 南京东路 四川北路 文化街 和平大街 学府路 江南大道"
_SHORT: Final = {official: short for short, official in reversed(SHORT.items())}


def addresses(count: int = SAMPLE_SIZE) -> Iterator[dict[str, Any]]:
    """Yield `{"id": 1, "address": ...}` and so on. Every address names its province, most by the official name."""
    rng = random.Random(_SEED)
    weighted = [name for name, (weight, _) in _PLACES.items() for _ in range(weight)]
    for number in range(1, count + 1):
        province = _pick(rng, weighted)
        cities = _PLACES[province][1]
        city = _pick(rng, tuple(cities))
        district = _pick(rng, cities[city].split())
        street = f"{_pick(rng, _STREETS.split())}{1 + int(rng.random() * 400)}号"
        if rng.random() < 0.3:
            street += f"{1 + int(rng.random() * 30)}栋{1 + int(rng.random() * 4)}单元"
        style = rng.random()
        start = _SHORT[province] if style < 0.15 else province
        between = " " if style > 0.9 else ""
        country = "中国" if 0.15 <= style < 0.2 else ""
        parts = [country + start, city, district, street]
        yield {"id": number, "address": between.join(part for part in parts if part)}


def sample_lines() -> list[bytes]:
    """Return the lines of the sample: one JSON object each, without line ends."""
    return (ROOT / "pipelines" / "addresses.jsonl").read_bytes().splitlines()


def _pick(rng: random.Random, choices: Sequence[T]) -> T:
    return choices[int(rng.random() * len(choices))]


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(prog="addresses.py", description="Print the sample addresses, one JSON a line.")
    parser.parse(sys.argv[1:] if argv is None else argv)
    for address in addresses():
        sys.stdout.buffer.write(json.dumps(address, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


if __name__ == "__main__":
    main()
