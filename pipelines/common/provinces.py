"""The 34 province-level divisions of China, and which of them a postal address names."""

from __future__ import annotations

import re
from typing import Final

# Official name and the short forms that addresses use, in the order of the division codes (GB/T 2260).
PROVINCES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("北京市", ("北京",)),
    ("天津市", ("天津",)),
    ("河北省", ("河北",)),
    ("山西省", ("山西",)),
    ("内蒙古自治区", ("内蒙古", "内蒙")),
    ("辽宁省", ("辽宁",)),
    ("吉林省", ("吉林",)),
    ("黑龙江省", ("黑龙江",)),
    ("上海市", ("上海",)),
    ("江苏省", ("江苏",)),
    ("浙江省", ("浙江",)),
    ("安徽省", ("安徽",)),
    ("福建省", ("福建",)),
    ("江西省", ("江西",)),
    ("山东省", ("山东",)),
    ("河南省", ("河南",)),
    ("湖北省", ("湖北",)),
    ("湖南省", ("湖南",)),
    ("广东省", ("广东",)),
    ("广西壮族自治区", ("广西",)),
    ("海南省", ("海南",)),
    ("重庆市", ("重庆",)),
    ("四川省", ("四川",)),
    ("贵州省", ("贵州",)),
    ("云南省", ("云南",)),
    ("西藏自治区", ("西藏",)),
    ("陕西省", ("陕西",)),
    ("甘肃省", ("甘肃",)),
    ("青海省", ("青海",)),
    ("宁夏回族自治区", ("宁夏",)),
    ("新疆维吾尔自治区", ("新疆",)),
    ("台湾省", ("台湾",)),
    ("香港特别行政区", ("香港",)),
    ("澳门特别行政区", ("澳门",)),
)

# Lower-level places whose names begin with the short form of a province that they are not part of.
NOT_PROVINCES: Final = ("河北区", "海南区", "海南州", "海南藏族自治州", "河南县", "河南蒙古族自治县")

_COUNTRY: Final = "中华人民共和国|中国"
_GAP: Final = r"[\s,\uff0c\u3001]*"  # blanks (the ideographic one too) and commas: Western, full-width, enumeration
# Roads are named after provinces all over the country: 北京路, 四川北路, 南京东路, 台湾街, 吉林大街.
# (But 道里 and 道外 are districts of 哈尔滨.)
_ROAD: Final = r"[东西南北中]?[一二三四五六七八九十\d]{0,3}(?:路|街|道(?![里外])|巷|胡同|大道|大街)"

_OFFICIAL: Final = {form: official for official, shorts in PROVINCES for form in (official, *shorts)}


def _any(forms: tuple[str, ...]) -> str:
    return "|".join(sorted(map(re.escape, forms), key=len, reverse=True))


_PATTERN: Final = re.compile(
    f"{_GAP}(?:(?:{_COUNTRY}){_GAP})?"
    f"(?:({_any(tuple(official for official, _ in PROVINCES))})"
    f"|(?!{_any(NOT_PROVINCES)})({_any(tuple(short for _, shorts in PROVINCES for short in shorts))})(?!{_ROAD}))"
)


def province_of(address: str) -> str | None:
    """Return the official name of the province that the address begins with, or None.

    The country may precede it, separated by blanks or commas. A short form counts ("浙江杭州市" is in 浙江省) unless
    it is part of the name of a road ("北京路1号") or of a lower-level place in `NOT_PROVINCES`.
    """
    found = _PATTERN.match(address)
    return _OFFICIAL[found[1] or found[2]] if found else None
