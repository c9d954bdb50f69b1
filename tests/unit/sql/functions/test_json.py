"""Functions of JSON: Flink 2.3.0 itself gave these values."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.values import ValueFailure
from tests.unit.sql.evaluating import evaluate

AS_FLINK: list[tuple[str, Any]] = [
    ('JSON_VALUE(\'{"a": 1, "b": {"c": [1, "x", null]}}\', \'$.a\')', "1"),
    ('JSON_VALUE(\'{"a": 1, "b": {"c": [1, "x", null]}}\', \'$.b\')', None),
    ('JSON_VALUE(\'{"a": 1, "b": {"c": [1, "x", null]}}\', \'$.b.c[1]\')', "x"),
    ('JSON_VALUE(\'{"a": 1, "b": {"c": [1, "x", null]}}\', \'$.b.c[2]\')', None),
    ('JSON_VALUE(\'{"a": 1, "b": {"c": [1, "x", null]}}\', \'$.b.c[9]\')', None),
    ('JSON_VALUE(\'{"a": 1, "b": {"c": [1, "x", null]}}\', \'$.z\')', None),
    ('JSON_VALUE(\'{"a": 1, "b": {"c": [1, "x", null]}}\', \'lax $.a\')', "1"),
    ('JSON_VALUE(\'{"a": 1, "b": {"c": [1, "x", null]}}\', \'strict $.a\')', "1"),
    ('JSON_VALUE(\'{"a": 1, "b": {"c": [1, "x", null]}}\', \'strict $.z\')', None),
    ('JSON_VALUE(\'{"a": 1, "b": {"c": [1, "x", null]}}\', \'a\')', "1"),
    ("JSON_VALUE('{\"a\": 1, \"b\": {\"c\": [1, \"x\", null]}}', '$[''a'']')", "1"),
    ('JSON_VALUE(\'{"a": 1, "b": {"c": [1, "x", null]}}\', \'$["a"]\')', "1"),
    ("JSON_VALUE('{\"a\": 1, \"b\": {\"c\": [1, \"x\", null]}}', '$.[''a'']')", "1"),
    ("JSON_VALUE('{\"a\": 1.50}', '$.a')", "1.50"),
    ("JSON_VALUE('{\"a\": 1e3}', '$.a')", "1E+3"),
    ("JSON_VALUE('{\"a\": 12345678901234567890123}', '$.a')", "12345678901234567890123"),
    ("JSON_VALUE('{\"a\": true}', '$.a')", "true"),
    ("JSON_VALUE('{\"a\": null}', '$.a')", None),
    ('JSON_VALUE(\'{"a": "x\\"y"}\', \'$.a\')', 'x"y'),
    ("JSON_VALUE('not json', '$.a')", None),
    ("JSON_VALUE('', '$.a')", None),
    ("JSON_VALUE('[1,2]', '$[0]')", "1"),
    ("JSON_VALUE('[1,2]', '$[-1]')", "2"),
    ("JSON_VALUE('[1,2]', '$[*]')", None),
    ("JSON_VALUE('[{\"a\":1},{\"a\":2}]', '$.a')", None),
    ("JSON_VALUE('[{\"a\":1}]', 'lax $.a')", None),
    ("JSON_VALUE('{\"a\":1}', '$.a[0]')", None),
    ("JSON_VALUE('1', '$')", "1"),
    ("JSON_VALUE('\"x\"', '$')", "x"),
    ("JSON_VALUE('{\"a.b\": 1}', '$.a.b')", None),
    ("JSON_VALUE('{\"a-b\": 1}', '$.a-b')", "1"),
    ("JSON_VALUE('{\"中\": 1}', '$.中')", "1"),
    ("JSON_VALUE('{\"a\":1,\"a\":2}', '$.a')", "2"),
    ("JSON_VALUE('{\"a\":1} x', '$.a')", "1"),
    ("JSON_VALUE('{''a'':1}', '$.a')", None),
    ("JSON_QUERY('{\"a\": {\"b\": 1.0}}', '$.a')", '{"b":1.0}'),
    ("JSON_QUERY('{\"a\": {\"b\": 1.0}}', '$.a.b')", None),
    ("JSON_QUERY('[1, 2]', '$')", "[1,2]"),
    ("JSON_QUERY('[1, \"ä\", null, {\"x\":  1e5}]', '$')", '[1,"ä",null,{"x":1E+5}]'),
    ("JSON_QUERY('{\"a\": {\"b\": 1}}', '$.z')", None),
    ('JSON_QUERY(\'{"a":[{"c":"c1"},{"c":"c2"}]}\', \'lax $.a[*].c\')', '["c1","c2"]'),
    ('JSON_QUERY(\'{"a":[{"c":"c1"},{"c":"c2"}]}\', \'$.a.c\')', None),
    ("JSON_QUERY('nope', '$')", None),
    ("JSON_EXISTS('{\"a\": true}', '$.a')", True),
    ("JSON_EXISTS('{\"a\": null}', '$.a')", False),
    ("JSON_EXISTS('{\"a\": true}', '$.b')", False),
    ("JSON_EXISTS('{\"a\": [{\"b\":1}]}', '$.a[0].b')", True),
    ("JSON_EXISTS('nope', '$.b')", False),
    ("JSON_EXISTS('{\"a\": [{\"b\":1}]}', '$.a[*].b')", True),
    ("JSON_EXISTS('{\"a\": []}', '$.a[*]')", True),
    ("JSON_QUERY('{}', '$.l[*]')", None),
    ("JSON_QUERY('[1]', 'lax $.l[*]')", "[]"),
    ("JSON_EXISTS('{}', 'lax $.l[*]')", True),
    ("JSON_EXISTS('null', 'lax $.l[*]')", False),
    ("JSON_QUERY('{\"l\": []}', '$.l[0][*]')", "[]"),
    ('JSON_QUERY(\'{"l": [{"c": [1, null]}, {"c": 2}, 3]}\', \'$.l[*].c[*]\')', "[1,null]"),
    ("JSON_QUERY('{\"l\": [[null, 1], [], 3]}', '$.l[*][0]')", "[null]"),
    ("JSON_STRING(1)", "1"),
    ("JSON_STRING(TRUE)", "true"),
    ("JSON_STRING('Hello \"W\" / ä é')", '"Hello \\"W\\" / ä é"'),
    ("JSON_STRING(ARRAY[1, 2])", "[1,2]"),
    ("JSON_STRING(MAP['a', 1])", '{"a":1}'),
    ("JSON_STRING(ROW(1, 'x'))", '{"EXPR$0":1,"EXPR$1":"x"}'),
    ("JSON_STRING(CAST(NULL AS INT))", None),
    ("JSON_STRING(1.50)", "1.50"),
    ("JSON_STRING(1e10)", "1.0E+10"),
    ("JSON_STRING(CAST(1.5 AS DOUBLE))", "1.5"),
    ("JSON_STRING(CAST(1e-5 AS DOUBLE))", "0.000010"),
    ("JSON_STRING(TIMESTAMP '2020-01-02 03:04:05.678')", '"2020-01-02T03:04:05.678"'),
    ("JSON_STRING(X'0102')", '"AQI="'),
    ("JSON_STRING(TO_TIMESTAMP_LTZ(0, 3))", '"1970-01-01T00:00:00Z"'),
    ("JSON_QUOTE('a\"b\\c/d')", '"a\\"b\\\\c\\/d"'),
    ("JSON_QUOTE('ä中')", '"\\u00e4\\u4e2d"'),
    ('JSON_UNQUOTE(\'"a\\"b"\')', 'a"b'),
    ("JSON_UNQUOTE('abc')", "abc"),
    ("JSON_UNQUOTE('\"abc')", '"abc'),
    ("JSON_UNQUOTE('\"\\u00e4\\n\"')", "ä\n"),
    ("JSON_UNQUOTE('[1]')", "[1]"),
    (r"""JSON_UNQUOTE('"\ud83dx"')""", "?x"),
    (r"""JSON_UNQUOTE('"\ud83d\ude00"')""", "\U0001f600"),
    (r"""JSON_VALUE('{"a": "\uDE00\\ud800"}', '$.a')""", r"?\ud800"),
    (r"""JSON_QUERY('{"a": ["\ud800"]}', '$.a')""", '["?"]'),
    ("JSON_OBJECT()", "{}"),
    ("JSON_ARRAY()", "[]"),
    ("JSON_ARRAY(1, '2')", '[1,"2"]'),
    ("JSON_ARRAY(1, CAST(NULL AS STRING))", "[1]"),
    ("JSON_ARRAY(ARRAY[1,2])", "[[1,2]]"),
    ("JSON_VALUE('{\"a\": {\"b c\": [[1,2],[3]]}}', '$.a[''b c''][0][1]')", "2"),
    ("JSON_EXISTS('{\"a\": [1]}', 'lax $.a[5]')", False),
    ("JSON_VALUE('{\"a\": 1.0}', '$.a')", "1.0"),
    ("JSON_VALUE('{\"a\": \"\\u00e4\"}', '$.a')", "ä"),
    ("JSON_VALUE('{\"a\": 1}', '$.a.b')", None),
    ("JSON_VALUE('{\"a\": \"x\"}', '$')", None),
    ('JSON_VALUE(\'{"a": {"b": "x"}}\', \'$.a["b"]\')', "x"),
    ('JSON_QUERY(\'{"a": [{"b": 1}, {"b": 2}]}\', \'$.a[0]\')', '{"b":1}'),
    ('JSON_QUERY(\'{"a": [{"b": 1}, {"b": 2}]}\', \'$.*\')', '[[{"b":1},{"b":2}]]'),
    ('JSON_EXISTS(\'{"a": [{"b": 1}, {"b": 2}]}\', \'$.a[*].c\')', True),
    ("JSON_EXISTS('[]', '$')", True),
    ("JSON_EXISTS('{\"a\": {}}', '$.a')", True),
    ("JSON_UNQUOTE('\"😀\\u4e2d\"')", "😀中"),
    ("JSON_STRING(CAST(1.1 AS FLOAT))", "1.100000023841858"),
    ("JSON_STRING(MAP['a', ARRAY[1.5, CAST(NULL AS DECIMAL(2,1))]])", '{"a":[1.5,null]}'),
    ("JSON_STRING(TIMESTAMP '2020-01-02 03:04:00')", '"2020-01-02T03:04:00"'),
    ("JSON_STRING(TIMESTAMP '2020-01-02 03:04:05.120')", '"2020-01-02T03:04:05.12"'),
    ("JSON_OBJECT(KEY 'b' VALUE 1, KEY 'a' VALUE 2, KEY 'B' VALUE 3)", '{"B":3,"a":2,"b":1}'),
    ("JSON_OBJECT(KEY 'b' VALUE JSON_OBJECT('z' VALUE 1, 'y' VALUE 2), KEY 'a' VALUE 2)", '{"a":2,"b":{"y":2,"z":1}}'),
    ("JSON_STRING(MAP['b',1,'a',2])", '{"a":2,"b":1}'),
    ('JSON_QUERY(\'{"b":1,"a":{"d":1,"c":2}}\', \'$\')', '{"a":{"c":2,"d":1},"b":1}'),
    *(
        (f"'{text}' IS JSON {kind}", kind in kinds)
        for text, kinds in {
            "1": ("", "VALUE", "SCALAR"),
            "-1.5e3": ("", "VALUE", "SCALAR"),
            '"a"': ("", "VALUE", "SCALAR"),
            "null": ("", "VALUE", "SCALAR"),
            "true": ("", "VALUE", "SCALAR"),
            "[]": ("", "VALUE", "ARRAY"),
            ' [1, {"a": 2}]': ("", "VALUE", "ARRAY"),
            "{}": ("", "VALUE", "OBJECT"),
            '{"a": [1]} x': ("", "VALUE", "OBJECT"),
            "": (),
            "a": (),
            "{a: 1}": (),
            "[1": (),
            "NaN": (),
            "2024-02-30": (),
            "12 x": ("", "VALUE", "SCALAR"),
            "12]": (),
            "true]": ("", "VALUE", "SCALAR"),
            "truex": (),
            "null1": (),
            '"a"b': ("", "VALUE", "SCALAR"),
        }.items()
        for kind in ("", "VALUE", "SCALAR", "ARRAY", "OBJECT")
    ),
    ("'a' IS NOT JSON", True),
    ("'[]' IS NOT JSON OBJECT", True),
    ("'{}' is not json object", False),
    ("JSON_STRING(JSON_OBJECT(KEY 'k' VALUE 'V'))", '{"k":"V"}'),
    ("JSON_STRING(JSON_ARRAY(1))", "[1]"),
    ("JSON_STRING(JSON_ARRAY(JSON_OBJECT(KEY 'k' VALUE 1)))", '[{"k":1}]'),
    ("JSON_STRING(JSON_QUERY('{\"a\": [1]}', '$.a'))", '"[1]"'),
    ("JSON_ARRAY(JSON_STRING(JSON_ARRAY(1)))", '["[1]"]'),  # it is a text
    ("JSON_OBJECT(KEY 'k' VALUE JSON_STRING(JSON_OBJECT(KEY 'a' VALUE 1)))", '{"k":"{\\"a\\":1}"}'),
    ("JSON_STRING(CAST('x' AS STRING))", '"x"'),
    ("JSON_STRING(CAST('-0.0' AS DOUBLE))", "0.0"),
]


@pytest.mark.parametrize(("expression", "expected"), AS_FLINK)
def test_a_value_is_that_of_flink(expression: str, expected: Any) -> None:
    assert repr(evaluate(expression)) == repr(expected)


A = """'{"a": 1, "s": "x", "l": [1], "o": {}, "n": null}'"""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"JSON_VALUE({A}, '$.a' RETURNING INTEGER)", 1),
        (f"JSON_VALUE({A}, '$.a' RETURNING DOUBLE)", 1.0),
        (f"JSON_VALUE({A}, '$.s' RETURNING INT)", None),
        (f"JSON_VALUE({A}, '$.s' RETURNING INT DEFAULT 7 ON EMPTY DEFAULT -1 ON ERROR)", -1),
        (f"JSON_VALUE({A}, 'lax $.z' DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR)", "empty"),
        (f"JSON_VALUE({A}, '$.z' DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR)", "error"),
        (f"JSON_VALUE({A}, '$.l' DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR)", "error"),
        (f"JSON_VALUE({A}, 'lax $.l' DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR)", "empty"),
        (f"JSON_VALUE({A}, '$.s' DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR)", "x"),
        ("JSON_VALUE('no', '$' DEFAULT 'error' ON ERROR)", "error"),
        ("JSON_VALUE('no', 'lax $' DEFAULT 'empty' ON EMPTY)", "empty"),
        ("JSON_VALUE(CAST(NULL AS STRING), '$.a' DEFAULT 'x' ON EMPTY)", None),
        (f"JSON_QUERY({A}, '$.a' WITH WRAPPER)", "[1]"),
        (f"JSON_QUERY({A}, '$.l' WITH UNCONDITIONAL ARRAY WRAPPER)", "[[1]]"),
        (f"JSON_QUERY({A}, '$.l' WITH CONDITIONAL WRAPPER)", "[1]"),
        (f"JSON_QUERY({A}, '$.o' WITH CONDITIONAL WRAPPER)", "[{}]"),
        (f"JSON_QUERY({A}, '$.l' WITHOUT ARRAY WRAPPER)", "[1]"),
        (f"JSON_QUERY({A}, '$.z' EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR)", "{}"),
        (f"JSON_QUERY({A}, '$.a' EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR)", "{}"),
        (f"JSON_QUERY({A}, 'lax $.a' EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR)", "[]"),
        (f"JSON_QUERY({A}, '$.l' RETURNING STRING)", "[1]"),
        (
            'JSON_QUERY(\'[1, "a", null, {"c": 1, "b": [true]}]\', \'$\' RETURNING ARRAY<STRING>)',
            ["1", "a", None, '{"b":[true],"c":1}'],
        ),
        (f"JSON_QUERY({A}, '$.s' RETURNING ARRAY<STRING> WITH CONDITIONAL WRAPPER)", ["x"]),
        (f"JSON_QUERY({A}, '$.s' RETURNING ARRAY<STRING>)", None),
        (f"JSON_QUERY({A}, '$.o' RETURNING ARRAY<STRING> EMPTY ARRAY ON ERROR)", []),
        (f"JSON_QUERY({A}, 'lax $.z' RETURNING ARRAY<STRING> EMPTY ARRAY ON EMPTY)", []),
        (f"JSON_EXISTS({A}, '$.z' TRUE ON ERROR)", True),
        (f"JSON_EXISTS({A}, '$.z' UNKNOWN ON ERROR)", None),
        (f"JSON_EXISTS({A}, 'lax $.z' TRUE ON ERROR)", False),
        (f"JSON_EXISTS({A}, '$.a' FALSE ON ERROR)", True),
        ("JSON_OBJECT(KEY 'a' VALUE 1, 'b' VALUE CAST(NULL AS INT))", '{"a":1,"b":null}'),
        ("JSON_OBJECT('a', JSON_ARRAY(1), KEY 'b' VALUE CAST(NULL AS INT) ABSENT ON NULL)", '{"a":[1]}'),
        ("JSON_OBJECT(KEY 'b' VALUE CAST(NULL AS INT), 'a' VALUE JSON_ARRAY() ABSENT ON NULL)", '{"a":[]}'),
        ("JSON_ARRAY(1, CAST(NULL AS INT), 'x' NULL ON NULL)", '[1,null,"x"]'),
        ("JSON_ARRAY(1, CAST(NULL AS INT) ABSENT ON NULL)", "[1]"),
        ("JSON_ARRAY(ABSENT ON NULL)", "[]"),
        ("CAST(NULL AS STRING) IS JSON", None),  # as the standard, and Flink since FLINK-39943, which gave FALSE
        ("CAST(NULL AS STRING) IS NOT JSON ARRAY", None),
        ("NULL IS JSON", None),
        ("JSON_OBJECT(KEY 'a' || UPPER('b') VALUE 1)", '{"aB":1}'),
        ("JSON_OBJECT(KEY UPPER('a') VALUE '1' IS JSON)", '{"A":true}'),
        ("JSON_OBJECT(KEY ('a' || 'b') VALUE 1, KEY('c') || ('d') VALUE 2)", '{"ab":1,"cd":2}'),
        ("json_object(KEY ARRAY['a', 'b'][1 * 2] VALUE 1 NULL ON NULL)", '{"b":1}'),
        ("JSON_OBJECT(KEY (CASE WHEN 1 = 2 OR TRUE THEN 'a' END) VALUE ABS(1))", '{"a":1}'),
    ],
)
def test_what_stands_behind_the_arguments_is_obeyed(expression: str, expected: Any) -> None:
    assert repr(evaluate(expression)) == repr(expected)


NULLS = [
    (mode, path, document, "EMPTY" if mode == "lax " and document != "null" else "ERROR")
    for mode in ("", "lax ", "strict ")
    for path, document in (
        ("$", "null"),
        ("$.a", "null"),
        ("$.a", '{"a": null}'),
        ("$.b.a", '{"b": {"a": null}}'),
        ("$[0]", "[null]"),
        ("$.a[1]", '{"a": [1, null]}'),
    )
]


@pytest.mark.parametrize(("mode", "path", "document", "event"), NULLS)
@pytest.mark.parametrize(
    ("call", "empty", "error"),
    [
        ("VALUE({}, '{}' DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR)", "empty", "error"),
        ("VALUE({}, '{}' RETURNING INT DEFAULT 1 ON EMPTY DEFAULT 2 ON ERROR)", 1, 2),
        ("QUERY({}, '{}' EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR)", "[]", "{}"),
        ("QUERY({}, '{}' WITH WRAPPER EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR)", "[]", "{}"),
        ("QUERY({}, '{}' WITH CONDITIONAL WRAPPER EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR)", "[]", "{}"),
        ("QUERY({}, '{}' RETURNING ARRAY<STRING> WITH WRAPPER EMPTY ARRAY ON ERROR)", None, []),
        ("EXISTS({}, '{}' TRUE ON ERROR)", False, True),
        ("EXISTS({}, '{}' UNKNOWN ON ERROR)", False, None),
    ],
)
def test_a_null_is_missing(call: str, empty: Any, error: Any, mode: str, path: str, document: str, event: str) -> None:
    found = evaluate("JSON_" + call.replace("{}", "j", 1).replace("{}", mode + path, 1), {"j": ("STRING", document)})
    assert found == (empty if event == "EMPTY" else error)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f"JSON_VALUE({A}, '$.n' ERROR ON ERROR)", "JSON_VALUE finds no value of its type at $.n"),
        (f"JSON_QUERY({A}, '$.n' ERROR ON ERROR)", "JSON_QUERY finds no object or array at $.n"),
        (f"JSON_EXISTS({A}, '$.n' ERROR ON ERROR)", "JSON_EXISTS finds nothing at $.n"),
        (f"JSON_VALUE({A}, 'lax $.z' ERROR ON EMPTY)", "JSON_VALUE finds nothing at lax $.z"),
        (f"JSON_VALUE({A}, '$.s' RETURNING INT ERROR ON ERROR)", "JSON_VALUE finds no value of its type at $.s"),
        (f"JSON_QUERY({A}, '$.z' ERROR ON ERROR)", "JSON_QUERY finds no object or array at $.z"),
        (
            f"JSON_QUERY({A}, '$.o' RETURNING ARRAY<STRING> ERROR ON ERROR)",
            "JSON_QUERY finds no object or array at $.o",
        ),
        (f"JSON_EXISTS({A}, '$.z' ERROR ON ERROR)", "JSON_EXISTS finds nothing at $.z"),
    ],
)
def test_error_on_error_is_a_bad_row(expression: str, message: str) -> None:
    with pytest.raises(ValueFailure) as caught:
        evaluate(expression.replace(A, "j"), {"j": ("STRING", A.strip("'"))})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f"JSON_VALUE({A}, '$.a' TRUE ON EMPTY)", "this ON EMPTY: NULL, ERROR or DEFAULT"),
        (f"JSON_VALUE({A}, '$.a' RETURNING DATE)", "returns STRING, BOOLEAN, INT, BIGINT, DOUBLE or DECIMAL, not DATE"),
        (f"JSON_VALUE({A}, '$.a' NULL ON ERROR NULL ON ERROR)", "can have only one ERROR"),
        (f"JSON_QUERY({A}, '$.a' RETURNING INT)", "JSON_QUERY returns STRING or ARRAY<STRING>, not INT"),
        (f"JSON_QUERY({A}, '$' RETURNING ARRAY<INT>)", "JSON_QUERY returns STRING or ARRAY<STRING>, not ARRAY<INT>"),
        (f"JSON_QUERY({A}, '$' RETURNING ARRAY<STRING> EMPTY OBJECT ON ERROR)", "has no EMPTY OBJECT: use EMPTY ARRAY"),
        (f"JSON_EXISTS({A}, '$.a' DEFAULT 1 ON ERROR)", "this ON ERROR: TRUE, FALSE, UNKNOWN or ERROR"),
        (f"JSON_EXISTS({A}, '$.a' TRUE ON EMPTY)", "JSON_EXISTS does not take this ON EMPTY"),
        ("JSON_ARRAY(1 RETURNING INT)", "JSON_ARRAY does not take this RETURNING"),
        ("UPPER('a' NULL ON NULL)", "only for JSON functions"),
        ("UPPER('a' PLACING 'b' FROM 1)", "can be used only in OVERLAY"),
    ],
)
def test_what_a_function_does_not_take_is_refused(expression: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        evaluate(expression)
