"""The province that an address names."""

from __future__ import annotations

import pytest

from pipelines.province import NOT_PROVINCES, PROVINCES, SHORT, province_of


def test_the_table_has_the_34_divisions_once_each() -> None:
    assert len({*PROVINCES, *SHORT}) == 34 + 35  # 内蒙 beside 内蒙古
    assert {*SHORT.values()} == {*PROVINCES}
    kinds = {
        suffix: sum(name.endswith(suffix) for name in PROVINCES) for suffix in ("省", "市", "自治区", "特别行政区")
    }
    assert kinds == {"省": 23, "市": 4, "自治区": 5, "特别行政区": 2}


@pytest.mark.parametrize(
    ("official", "form"), [(name, name) for name in PROVINCES] + [(name, form) for form, name in SHORT.items()]
)
@pytest.mark.parametrize(
    "template", ["{}", "{}某市某区某路1号", "中国{}某市", "  中国 {} 某市", "中华人民共和国\uff0c{}\uff0c某市"]
)
def test_every_form_is_found_at_the_start(official: str, form: str, template: str) -> None:
    assert province_of(template.format(form)) == official


@pytest.mark.parametrize(
    ("address", "province"),
    [
        ("浙江省杭州市西湖区文三路90号", "浙江省"),
        ("浙江杭州市西湖区北京路1号", "浙江省"),
        ("\u3000内蒙呼和浩特市", "内蒙古自治区"),
        ("吉林市昌邑区", "吉林省"),
        ("吉林省吉林市", "吉林省"),
        ("北京东城区东直门外大街1号", "北京市"),
        ("天津市河北区光复道1号", "天津市"),
        ("青海省海南藏族自治州共和县", "青海省"),
        ("香港九龙弥敦道1号", "香港特别行政区"),
        ("黑龙江道里区中央大街1号", "黑龙江省"),
        ("", None),
        ("   ", None),
        ("中国", None),
        ("杭州市西湖区文三路90号", None),
        ("北京路12号", None),
        ("四川北路12号", None),
        ("上海南三路5号", None),
        ("吉林大街9号", None),
        ("杭州市 浙江省", None),
        ("Zhejiang, Hangzhou", None),
        *[(place, None) for place in NOT_PROVINCES],
    ],
)
def test_ambiguous_beginnings(address: str, province: str | None) -> None:
    assert province_of(address) == province
