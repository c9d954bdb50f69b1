"""Passwords in scripts: errors and listings show `***` in their place."""

from __future__ import annotations

import pytest

from rmqio.sql.errors import Source, Span
from rmqio.sql.explain.plans import explain
from rmqio.sql.scripts.script import Script
from rmqio.sql.secret_options import masked
from rmqio.sql.secret_values import is_secret


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("'pasword' = 'hunter2', 'table-name' = 'c'", "'pasword' = '***', 'table-name' = 'c'"),
        ("'password' = 'it''s' 'table-name' = 'c'", "'password' = '***' 'table-name' = 'c'"),
        ("'secretKey' 'abcd'", "'secretKey' '***'"),
        ("'auth' = 'hunter2', 'headers.Authorization' = 'Basic x'", "'auth' = '***', 'headers.Authorization' = '***'"),
        ("'username' 'password' = 'hunter2'", "'username' 'password' = '***'"),
        ("'password' =\n  'hunter2'", "'password' =\n  '***'"),
        ("'password' = 'hunter2", "'password' = '***"),
        ("WITH (password = hunter2, a = 'b')", "WITH (password = ***, a = 'b')"),
        ("WITH (password = hun.ter2)", "WITH (password = ***)"),
        ("WIHT (pasword = hunter2)", "WIHT (pasword = ***)"),
        ("CREATE TABLE t (a INT) (password = 'hunter2')", "CREATE TABLE t (a INT) (password = '***')"),
        ("FROM t /*+ OPTIONS(password = hunter2) */", "FROM t /*+ OPTIONS(password = ***) */"),
        ("SET db.password = hunter2;", "SET db.password = ***;"),
        ("'password' => 'hunter2'", "'password' => '***'"),
        ("'password': 'hunter2'", "'password': '***'"),
        ("""'{"user": "me", "password": "hun\\"ter2", "x": 1}'""", """'{"user": "me", "password": "***", "x": 1}'"""),
        ("'password' = ''hunter2''", "'password' = '***'"),
        ("WITH ('password = 'hunter2', 'a' = 'b')", "WITH ('password = '***', 'a' = 'b')"),
        ("WITH ('pasword','hunter2', 'a' = 'b')", "WITH ('pasword','***', 'a' = 'b')"),
        ("WITH ('password', 'a' = 'b')", "WITH ('password', 'a' = 'b')"),
        ("WITH ('table-name' = 'tokens', 'a' = 'b')", "WITH ('table-name' = 'tokens', 'a' = 'b')"),
        ("WITH ('table-name' = 'tokens' 'a' = 'b')", "WITH ('table-name' = 'tokens' 'a' = 'b')"),
        ("WITH ('sql' = 'token = ''x'' AND pwd = 5')", "WITH ('sql' = 'token = ''x'' AND pwd = 5')"),
        ("'api_key'='abcdef', 'message-key'='id'", "'api_key'='***', 'message-key'='id'"),
        ("'url' = 'postgresql://me:pa@ss@h/db'", "'url' = 'postgresql://me:***@h/db'"),
        ("'url' = 'jdbc:mysql://h/db?user=me&password=hunter2'", "'url' = 'jdbc:mysql://h/db?user=me&password=***'"),
        ("mysql://h/db?password=ge.heim&x=1", "mysql://h/db?password=***&x=1"),
        (
            "WITH ('url' = 'mysql://h/db?x=1&password=ge;h(e,i)m&y=1')",
            "WITH ('url' = 'mysql://h/db?x=1&password=***&y=1')",
        ),
        ("'jdbc:sqlserver://h;password=ge.heim'", "'jdbc:sqlserver://h;password=***'"),
        ("""'mysql://m''e:p"a''s/s w@r@h/db'""", "'mysql://m''e:***@h/db'"),
        ("""{"url": "mysql://me:p'a:s/s w@h/db"}""", """{"url": "mysql://me:***@h/db"}"""),
        ("'mysql://h/db', 'dead-letters' = 'a@b'", "'mysql://h/db', 'dead-letters' = 'a@b'"),
        ("'password_env' = 'MyPassword1', 'token-env' = 'PATH'", "'password_env' = '***', 'token-env' = 'PATH'"),
        ("mysql://h/db?password_env=MyPassword1", "mysql://h/db?password_env=***"),
        ("'password_env' = 'DB', 'password_file' = '/run/x'", "'password_env' = 'DB', 'password_file' = '/run/x'"),
        ("'password_env' = 'hunter-2'", "'password_env' = '***'"),
        ("WITH ('a' = 'b' /* (old) */, password = hunter2)", "WITH ('a' = 'b' /* (old) */, password = ***)"),
        ("WITH ('a' = 'b' /* it's */, password = hunter2)", "WITH ('a' = 'b' /* it's */, password = ***)"),
        ("WITH (a = 'b' /* (old) */, password = 'hunter2')", "WITH (a = 'b' /* (old) */, password = '***')"),
        ("WITH (a = f(x), password = 'hunter2')", "WITH (a = f(x), password = '***')"),
        ("ALTER TABLE t SET (password = 'hunter2')", "ALTER TABLE t SET (password = '***')"),
        ("CREATE TABLE t (a INT) password = 'hunter2'", "CREATE TABLE t (a INT) password = '***'"),
        ("WITH (a = f(x), password = hunter2)", "WITH (a = f(x), password = ***)"),
        ("t (a INT) WITH password = 'hunter2', b = 'c'", "t (a INT) WITH password = '***', b = 'c'"),
        ("t (a INT, b AS f(a, 'on')) password = 'hunter2'", "t (a INT, b AS f(a, 'on')) password = '***'"),
        ("SELECT 1 WITH password = 'hunter2'", "SELECT 1 WITH password = '***'"),
        ("ALTER TABLE t SET (password = hunter2)", "ALTER TABLE t SET (password = ***)"),
        ("WITH (password 'hunter2')", "WITH (password '***')"),
        ("'url' = 'host=h password=hunter2'", "'url' = 'host=h password=***'"),
        ("'dsn'='password=''hun ter2'' host=h'", "'dsn'='password=*** host=h'"),
        ("'password' = /* c */ 'hunter2'", "'password' = /* c */ '***'"),
        ("'password' = -- c\n'hunter2'", "'password' = -- c\n'***'"),
        ("'password' /* c */ = 'hunter2'", "'password' /* c */ = '***'"),
        ("-- 'password' = 'hunter2'", "-- 'password' = '***'"),
        ("'password' == 'hunter2'", "'password' == '***'"),
        ("'password' := 'hunter2'", "'password' := '***'"),
        ("'password' = U&'hunter2', 'pwd' = E'hunter2'", "'password' = U&'***', 'pwd' = E'***'"),
        ("SET db.password := hunter2;", "SET db.password := ***;"),
        ("'url' = 'oracle://me/hunter2@h/db'", "'url' = 'oracle://me/***@h/db'"),
        ("'url' = 'mysql:/me:hunter2@h/db'", "'url' = 'mysql:/me:***@h/db'"),
        ("'url' = 'postgresql:me:hunter2@h/db'", "'url' = 'postgresql:me:***@h/db'"),
        ("'url' = 'mysql://h:3306/db?email=a@b'", "'url' = 'mysql://h:***@b'"),
        ("'url' = 'jdbc:mysql://me@a:hun ter2@h/db'", "'url' = 'jdbc:mysql://me@a:***@h/db'"),
        ("postgresql://us/er:hunter2@h/db", "postgresql://us/***@h/db"),
        ("'url' = 'postgresql://us#er:hunter2@h/db'", "'url' = 'postgresql://us#er:***@h/db'"),
        ("CREATE TABLE t (password STRING, token INT)", "CREATE TABLE t (password STRING, token INT)"),
        ("WHERE token = tokn AND `token` = tokn", "WHERE token = tokn AND `token` = tokn"),
        ("WHERE passed = score AND token = 'x'", "WHERE passed = score AND token = 'x'"),
        ("f(x) AND (token = tokn)", "f(x) AND (token = tokn)"),
        ("WHERE (token = tokn) AND CASE WHEN (token = x)", "WHERE (token = tokn) AND CASE WHEN (token = x)"),
        ("WITH x AS (SELECT 1 WHERE token = tokn)", "WITH x AS (SELECT 1 WHERE token = tokn)"),
        ("WITH ('a' = 'b') AS SELECT token = tokn", "WITH ('a' = 'b') AS SELECT token = tokn"),
        ("COALESCE('token', 'x'), MAP['password', 'x']", "COALESCE('token', 'x'), MAP['password', 'x']"),
        ("ON a.token = b.token AND f(token) > 3", "ON a.token = b.token AND f(token) > 3"),
        ("'topic' = 'password'", "'topic' = 'password'"),
        ("SELECT a, token = 'x', (token = 'x') FROM t", "SELECT a, token = 'x', (token = 'x') FROM t"),
        ("t (token INT, c AS (token = 'x'), d AS token = 'x')", "t (token INT, c AS (token = 'x'), d AS token = 'x')"),
        ("SELECT token::VARCHAR, 'token'::VARCHAR", "SELECT token::VARCHAR, 'token'::VARCHAR"),
        ("a INT COMMENT 'the token = ''x'' of 1'", "a INT COMMENT 'the token = ''x'' of 1'"),
        ("'zz'='api_key: hunter2', 'a'='b'", "'zz'='api_key: ***', 'a'='b'"),
        ("'zz'='api_key:hunter2'", "'zz'='api_key:***'"),
        ("'x.http-headers'='X-Api-Key: hunter2'", "'x.http-headers'='X-Api-Key: ***'"),
        ("'headers'='Authorization: Bearer hunter2'", "'headers'='Authorization: ***'"),
        ("'zz'='Authorization=Bearer hunter2'", "'zz'='Authorization=***'"),
        ("'zz'='A: b, X-Api-Key: hun,ter2, C: d'", "'zz'='A: b, X-Api-Key: ***, C: d'"),
        ("'zz'='Authorization: Digest a=\"b\", response=\"hunter2\"'", "'zz'='Authorization: ***'"),
        ("'zz'='A=b,X-Api-Key=hunter2'", "'zz'='A=b,X-Api-Key=***'"),
        ("'zz'='Cookie: sid=hunter2; Path=/', 'cookie'='sid=x'", "'zz'='Cookie: ***', 'cookie'='***'"),
        ("'zz'='Bearer hunter2'", "'zz'='***'"),
        ("'zz'='Basic dXNlcjpodW50ZXIy'", "'zz'='***'"),
        ("WITH (zz=Bearer hunter2, a='b')", "WITH (zz=***, a='b')"),
        ("-- 'zz'='Token hunter2'", "-- 'zz'='***'"),
        ("""'zz'='{\\"password\\": \\"hunter2\\"}'""", """'zz'='{\\"password\\": \\"***\\"}'"""),
        ("""'zz'='{"tokens": ["hunter2"]}'""", """'zz'='{"tokens": ***]}'"""),
        ("'zz'='{password: hunter2, user: me}'", "'zz'='{password: ***, user: me}'"),
        ("""'j'='X required password="hunter2";'""", """'j'='X required password="***";'"""),
        ("'j'='X required password=''hunter2'';'", "'j'='X required password=***;'"),
        ("'zz'='--password hunter2 --a b'", "'zz'='--password *** --a b'"),
        ("'zz'='password hunter2'", "'zz'='password ***'"),
        ("'zz'='https://hunter2@h/x?sv=1&sig=ab'", "'zz'='https://***@h/x?sv=1&sig=***'"),
        ("'zz'='AccountKey=hunter2', 'account'='me'", "'zz'='AccountKey=***', 'account'='me'"),
        ("'zz'='-----BEGIN PRIVATE KEY-----ab'", "'zz'='-----BEGIN ***'"),
        ("'sql'='a = 1 AND auth: hunter2'", "'sql'='a = 1 AND auth: ***'"),
        ("'sql'='token=5 AND token'", "'sql'='token=5 AND token'"),
        ("'topic'='password-resets', 'h'='token-service:9876,auth-db:9876'",) * 2,
        ("'url'='http://auth:8080/x', 'start'='10:30', 'h'='host:9876'",) * 2,
        ("'grok.pattern'='%{WORD:token} %{DATA:password:int} token: %{IP:auth}'",) * 2,
        ("""'avro.schema'='{"name":"password","type":["null","string"]}'""",) * 2,
        ("""'json-confluent.schema'='{"password":{"type":"string"}}'""",) * 2,
        ("WITH ('keys'='token;password', 'b'='c')",) * 2,
        ("'x'='basic plan of us', 'y'='Token', 'z'='password_env: DB', 'p'='pw: ${PW}'",) * 2,
        ("a INT COMMENT 'the token: of it'",) * 2,
        ("SELECT 'Bearer x', 'password: x' FROM t",) * 2,
        ("INSERT INTO t VALUES ('Bearer x', 'password: y')",) * 2,
    ],
)
def test_values_of_secret_options_are_hidden(text: str, wanted: str) -> None:
    assert masked(text) == wanted


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("passwrod", True), ("PASSWORD", True), ("sasl.password", True), ("secert-key", True), ("apiToken", True),
        ("pwd", True), ("password-file", False), ("topic", False), ("table-name", False), ("path", False), ("1", False),
    ],
)  # fmt: skip
def test_which_options_are_secret(key: str, secret: bool) -> None:
    assert is_secret(key) is secret


@pytest.mark.parametrize(("place", "carets"), [("'tabel'", 7), ("'hunter2'", 5), ("WITH", 4), ("'pasword'", 9)])
def test_carets_stand_below_their_place(place: str, carets: int) -> None:
    text = "CREATE TABLE t (a INT)\nWITH ('pasword' = 'hunter2', 'tabel' = 'c')\n;"
    start = text.index(place)
    shown = str(Source(text, "job.sql").error(f"unexpected {place}: it is hunter2", Span(start, start + len(place))))
    assert "hunter2" not in shown
    message, line, marks = shown.splitlines()
    assert message.endswith(": it is ***")
    assert line == "  WITH ('pasword' = '***', 'tabel' = 'c')"
    assert marks.count("^") == carets
    assert line[marks.index("^")] == place[0]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("'connector'='filesystem', 'path'='s3://k:hunter2@b/x.csv', 'format'='csv'", "files s3://k:***@b/x.csv, csv"),
        ("'connector'='rocketmq', 'topic'='t', 'tag'='Bearer hunter2'", "filters by tag: ***"),
        ("'connector'='rocketmq', 'topic'='t', 'sql'='pwd = 5 OR auth: hunter2'", "SQL92: pwd = 5 OR auth: ***"),
        ("'connector'='jdbc', 'url'='sqlite:///x', 'table-name'='pw: hunter2'", "table pw: *** of sqlite:///x"),
    ],
)
def test_explain_hides_them_too(options: str, wanted: str) -> None:
    script = Script()
    sink = "CREATE TABLE o (a INT) WITH ('connector'='print')"
    script.run(f"CREATE TABLE t (a INT) WITH ({options}); {sink}; INSERT INTO o SELECT a FROM t")
    shown = explain(script.sinks)
    assert "hunter2" not in shown
    assert wanted in shown


def test_a_message_has_no_value_whose_quotes_are_doubled_in_the_text() -> None:
    source = Source("CREATE TABLE t (a INT) WITH ('password' = 'it''s hunter2')")
    assert str(source.error('it is "it\'s hunter2"', None)) == 'it is "***"'
