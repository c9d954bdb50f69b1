"""Passwords in scripts: errors and listings show `***` in their place."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from rmqio.sql.catalog.connectors import ConnectorOptions
from rmqio.sql.errors import Source, Span, SqlError
from rmqio.sql.explain.plans import explain
from rmqio.sql.lookup.sources import Line
from rmqio.sql.scripts.script import Script
from rmqio.sql.secrets import HIDDEN, is_secret, masked


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("'pasword' = 'hunter2', 'table-name' = 'c'", "'pasword' = '***', 'table-name' = 'c'"),
        ("'password' = 'it''s' 'table-name' = 'c'", "'password' = '***' 'table-name' = 'c'"),
        ("'secretKey' 'abcd'", "'secretKey' ***"),
        ("'auth' = 'hunter2', 'headers.Authorization' = 'Basic x'", "'auth' = '***', 'headers.Authorization' = '***'"),
        ("'username' 'password' = 'hunter2'", "'username' 'password' = ***"),
        ("'password' =\n  'hunter2'", "'password' =\n  '***'"),
        ("'password' = 'hunter2", "'password' = ***"),
        ("WITH (password = hunter2, a = 'b')", "WITH (password = ***"),
        ("WITH (password = hun.ter2)", "WITH (password = ***"),
        ("WIHT (pasword = hunter2)", "WIHT (pasword = ***"),
        ("CREATE TABLE t (a INT) (password = 'hunter2')", "CREATE TABLE t (a INT) (password = ***"),
        ("FROM t /*+ OPTIONS(password = hunter2) */", "FROM t /*+ OPTIONS(password = ***"),
        ("SET db.password = hunter2;", "SET db.password = ***;"),
        ("'password' => 'hunter2'", "'password' => ***"),
        ("'password': 'hunter2'", "'password': ***"),
        (
            """'j'='{"user": "me", "password": "hun\\"ter2", "x": 1}'""",
            """'j'='{"user": "me", "password": "***", "x": 1}'""",
        ),
        ("'password' = ''hunter2''", "'password' = ***"),
        ("WITH ('password = 'hunter2', 'a' = 'b')", "WITH ('password = '***', 'a' = 'b')"),
        ("WITH ('pasword','hunter2', 'a' = 'b')", "WITH ('pasword','***', 'a' = 'b')"),
        ("WITH ('password', 'a' = 'b')", "WITH ('password', ***"),
        ("WITH ('table-name' = 'tokens', 'a' = 'b')", "WITH ('table-name' = 'tokens', 'a' = 'b')"),
        ("WITH ('table-name' = 'tokens' 'a' = 'b')", "WITH ('table-name' = 'tokens' 'a' = 'b')"),
        ("'sql' = 'token = ''x'' AND pwd = 5'",) * 2,
        ("'api_key'='abcdef', 'message-key'='id'", "'api_key'='***', 'message-key'='id'"),
        ("'url' = 'postgresql://me:pa@ss@h/db'", "'url' = 'postgresql://me:***@h/db'"),
        ("'url' = 'jdbc:mysql://h/db?user=me&password=hunter2'", "'url' = 'jdbc:mysql://h/db?user=me&password=***'"),
        ("mysql://h/db?password=ge.heim&x=1", "mysql://h/db?password=***"),
        ("'url' = 'mysql://h/db?x=1&password=ge;h(e,i)m&y=1'", "'url' = 'mysql://h/db?x=1&password=***&y=1'"),
        ("'url'='mysql://h/db?x=1&password=ge&heim&y=1'", "'url'='mysql://h/db?x=1&password=***&y=1'"),
        ("'url'='mysql://h/db?password=ge&heim'", "'url'='mysql://h/db?password=***'"),
        ("'url'='odbc:DRIVER={X};UID=u;PWD={ge;heim}'", "'url'='odbc:DRIVER={X};UID=u;PWD=***'"),
        ("'url'='mssql:///?odbc_connect=DRIVER={X};PWD={heim}'", "'url'='mssql:///?odbc_connect=DRIVER={X};PWD=***'"),
        ("""'j'='{"token": {"value": "ge"}}'""", """'j'='{"token": ***'"""),
        ("'url'='jdbc:sqlserver://h;password=ge.heim'", "'url'='jdbc:sqlserver://h;password=***'"),
        ("""'url'='mysql://m''e:p"a''s/s w@r@h/db'""", "'url'='mysql://m''e:***@h/db'"),
        ("""{"url": "mysql://me:p'a:s/s w@h/db"}""", """{"url":***"""),
        ("'url' = 'mysql://h/db', 'dead-letters' = 'a@b'",) * 2,
        ("'password_env' = 'MyPassword1', 'token-env' = 'PATH'", "'password_env' = '***', 'token-env' = 'PATH'"),
        ("mysql://h/db?password_env=MyPassword1", "mysql://h/db?password_env=***"),
        ("'password_env' = 'DB', 'password_file' = '/run/x'", "'password_env' = 'DB', 'password_file' = '/run/x'"),
        ("'password_env' = 'hunter-2'", "'password_env' = '***'"),
        ("WITH ('a' = 'b' /* (old) */, password = hunter2)", "WITH ('a' = 'b' /* (old) */, password = ***"),
        ("WITH ('a' = 'b' /* it's */, password = hunter2)", "WITH ('a' = 'b' /* it's */, password = ***"),
        ("WITH (a = 'b' /* (old) */, password = 'hunter2')", "WITH (a = 'b' /* (old) */, password = ***"),
        ("WITH (a = f(x), password = 'hunter2')", "WITH (a = f(x), password = ***"),
        ("ALTER TABLE t SET (password = 'hunter2')", "ALTER TABLE t SET (password = ***"),
        ("CREATE TABLE t (a INT) password = 'hunter2'", "CREATE TABLE t (a INT) password = ***"),
        ("WITH (a = f(x), password = hunter2)", "WITH (a = f(x), password = ***"),
        ("t (a INT) WITH password = 'hunter2', b = 'c'", "t (a INT) WITH password = ***"),
        ("t (a INT, b AS f(a, 'on')) password = 'hunter2'", "t (a INT, b AS f(a, 'on')) password = ***"),
        ("SELECT 1 WITH password = 'hunter2'", "SELECT 1 WITH password = ***"),
        ("ALTER TABLE t SET (password = hunter2)", "ALTER TABLE t SET (password = ***"),
        ("WITH (password 'hunter2')", "WITH (password ***"),
        ("'url' = 'host=h password=hunter2'", "'url' = 'host=h password=***'"),
        ("'dsn'='password=''hun ter2'' host=h'", "'dsn'='password=*** host=h'"),
        ("'password' = /* c */ 'hunter2'", "'password' = /* c */ '***'"),
        ("'password' = -- c\n'hunter2'", "'password' = -- c\n'***'"),
        ("'password' /* c */ = 'hunter2'", "'password' /* c */ = '***'"),
        ("-- 'password' = 'hunter2'", "-- 'password' = ***"),
        ("'password' == 'hunter2'", "'password' == ***"),
        ("'password' := 'hunter2'", "'password' := ***"),
        ("'password' = U&'hunter2', 'pwd' = E'hunter2'", "'password' = U&'***', 'pwd' = ***"),
        ("SET db.password := hunter2;", "SET db.password := ***"),
        ("'url' = 'oracle://me/hunter2@h/db'", "'url' = 'oracle://me/***@h/db'"),
        ("'url' = 'mysql:/me:hunter2@h/db'", "'url' = '***'"),
        ("'url' = 'postgresql:me:hunter2@h/db'", "'url' = '***'"),
        ("'url' = 'mysql://h:3306/db?email=a@b'", "'url' = 'mysql://h:***@b'"),
        ("'url' = 'jdbc:mysql://me@a:hun ter2@h/db'", "'url' = 'jdbc:mysql://me@a:***@h/db'"),
        ("postgresql://us/er:hunter2@h/db", "postgresql://us/***"),
        ("'url' = 'postgresql://us#er:hunter2@h/db'", "'url' = 'postgresql://us#er:***@h/db'"),
        ("CREATE TABLE t (password STRING, token INT)", "CREATE TABLE t (password STRING, token INT)"),
        ("WHERE token = tokn AND `token` = tokn", "WHERE token = tokn AND `token` = tokn"),
        ("WHERE passed = score AND token = 'x'", "WHERE passed = score AND token = 'x'"),
        ("SELECT a FROM t WHERE f(x) AND (token = tokn)",) * 2,
        ("WHERE (token = tokn) AND CASE WHEN (token = x)", "WHERE (token = tokn) AND CASE WHEN (token = x)"),
        ("WITH x AS (SELECT 1 WHERE token = tokn)", "WITH x AS (SELECT 1 WHERE token = tokn)"),
        ("WITH ('a' = 'b') AS SELECT token = tokn", "WITH ('a' = 'b') AS SELECT token = ***"),
        ("SELECT COALESCE('token', 'x'), MAP['password', 'x']",) * 2,
        ("SELECT 1 FROM a JOIN b ON a.token = b.token AND f(token) > 3",) * 2,
        ("'topic' = 'password'", "'topic' = 'password'"),
        ("SELECT a, token = 'x', (token = 'x') FROM t", "SELECT a, token = 'x', (token = 'x') FROM t"),
        ("CREATE TABLE t (token INT, c AS (token = 'x'), d AS token = 'x')",) * 2,
        ("SELECT token::VARCHAR, 'token'::VARCHAR", "SELECT token::VARCHAR, 'token'::VARCHAR"),
        ("CREATE TABLE t (a INT COMMENT 'the token = ''x'' of 1')",) * 2,
        ("'zz'='api_key: hunter2', 'a'='b'", "'zz'='api_key: ***', 'a'='b'"),
        ("'zz'='api_key:hunter2'", "'zz'='api_key:***'"),
        ("'x.http-headers'='X-Api-Key: hunter2'", "'x.http-headers'='X-Api-Key: ***'"),
        ("'headers'='Authorization: Bearer hunter2'", "'headers'='Authorization: ***'"),
        ("'zz'='Authorization=Bearer hunter2'", "'zz'='Authorization=***'"),
        ("'zz'='A: b, X-Api-Key: hun,ter2, C: d'", "'zz'='A: b, X-Api-Key: ***'"),
        ("'zz'='Authorization: Digest a=\"b\", response=\"hunter2\"'", "'zz'='Authorization: ***'"),
        ("'zz'='A=b,X-Api-Key=hunter2'", "'zz'='A=b,X-Api-Key=***'"),
        ("'zz'='Cookie: sid=hunter2; Path=/', 'cookie'='sid=x'", "'zz'='Cookie: ***', 'cookie'='***'"),
        ("'zz'='Bearer hunter2'", "'zz'='***'"),
        ("'zz'='Basic dXNlcjpodW50ZXIy'", "'zz'='***'"),
        ("WITH (zz=Bearer hunter2, a='b')", "WITH (zz=***"),
        ("-- 'zz'='Token hunter2'", "-- 'zz'='***"),
        ("""'zz'='{\\"password\\": \\"hunter2\\"}'""", """'zz'='{\\"password\\": \\"***\\"}'"""),
        ("""'zz'='{"tokens": ["hunter2"]}'""", """'zz'='{"tokens": ***'"""),
        ("'zz'='{password: hunter2, user: me}'", "'zz'='{password: ***'"),
        ("""'j'='X required password="hunter2";'""", """'j'='X required password="***";'"""),
        ("'j'='X required password=''hunter2'';'", "'j'='X required password=***;'"),
        ("'zz'='--password hunter2 --a b'", "'zz'='--password ***'"),
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
        ("'keys'='token;password', 'b'='c'",) * 2,
        ("'x'='basic plan of us', 'y'='Token', 'z'='password_env: DB', 'p'='pw: ${PW}'",) * 2,
        ("CREATE TABLE t (a INT COMMENT 'the token: of it')",) * 2,
        ("SELECT 'Bearer x', 'password: x' FROM t",) * 2,
        ("INSERT INTO t VALUES ('Bearer x', 'password: y')",) * 2,
        (
            "'grok.pattern'='token: (?<x>a)', 'name-server'='token:98765', 'zz'='token:98765'",
            "'grok.pattern'='token: (?<x>a)', 'name-server'='token:98765', 'zz'='token:***'",
        ),
        ("'path'='/a/token=5/x.csv', 'path'='token=5/x.csv'", "'path'='/a/token=***/x.csv', 'path'='token=***/x.csv'"),
        (
            "'url'='mssql://?odbc_connect=UID%3Dme%3BPWD%3Da%3Bhunter2'",
            "'url'='mssql://?odbc_connect=UID%3Dme%3BPWD%3D***'",
        ),
        ("WITH token AS (SELECT 1), pwd (a) AS (SELECT 'x') SELECT a",) * 2,
        ("CREATE TABLE token (pwd STRING 'x', auth INT)", "CREATE TABLE token (pwd ***"),
        ("-- with a token of ten seconds\nSELECT 1",) * 2,
        ("WITH (ten = 5, 'ten' = '5')",) * 2,
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO token SELECT auth FROM pwd; END",) * 2,
        ("'password_file'='a!hunter2', 'token-path'='x'", "'password_file'='***', 'token-path'='***'"),
        ("'password_file'='a/hunter2', 'tokenFile'='b/hunter2=='", "'password_file'='***', 'tokenFile'='***'"),
        ("'password_file'='/run/x', 'tokenFile'='./secrets/a', 'x.path'='b'",) * 2,
        ("mysql://h/db?password_file=hunter2", "mysql://h/db?password_file=***"),
        ("'url'='scott/hunter2@h:1521/x', 'path'='C:/data/a@b.csv'", "'url'='***', 'path'='C:/data/a@b.csv'"),
        ("'path'='s3;//k:hunter2@b/x.csv', 'name-server'='u@h:hunter2'", "'path'='***', 'name-server'='***'"),
        (
            "'url'='postgresql://u;hunter2@h/db', 'zz'='postgresql://me@h:5/db'",
            "'url'='postgresql://***@h/db', 'zz'='postgresql://me@h:5/db'",
        ),
        ("CREATE FUNCTION token AS 'm.token' LANGUAG PYTHON",) * 2,
        ("CREATE TABLE t (token STRING METADATA FROM 'token' VIRTUA, pwd INT) WITH ('a' = 'b')",) * 2,
        ("CREATE TABLE t (a INT COMMENT 'its token',\n pwd ROW<a INT>, PRIMARY KEY (pwd)) WITH ('a' 'b')",) * 2,
        ("'bypass' = 'x', 'primary.key' = 'id', 'key.fields' = 'id'",) * 2,
    ],
)
def test_values_of_secret_options_are_hidden(text: str, wanted: str) -> None:
    """A list of options is one of a statement; what does not parse is hidden to the end of its line."""
    before, behind = ("CREATE TABLE t (a INT) WITH (", ")") if text.startswith("'") else ("", "")
    assert masked(f"{before}{text}{behind}") == f"{before}{wanted}{'' if wanted.endswith('***') else behind}"


@pytest.mark.parametrize(
    "options",
    [
        "'connector'='jdbc', 'table-name'='t', 'url'='u:HUNTER2x@h:5432/db'",
        "'connector'='jdbc', 'table-name'='t', 'url'='u:HUNTER:2x@h:5432/db'",
        "'connector'='jdbc', 'table-name'='t', 'url'='postgresql//u:HUNTER2x@h/db'",
        "'connector'='jdbc', 'table-name'='t', 'url'='jdbc:mysql//u:HUNTER2x@h/db'",
        "'connector'='jdbc', 'table-name'='t', 'url'='//u:HUNTER2x@h:5432/db'",
        "'connector'='jdbc', 'table-name'='t', 'url'='postgresql://u:HUNTER2x/db'",
        "'connector'='jdbc', 'table-name'='t', 'url'='mysql//u:1HUNTER2x/db'",
        "'connector'='jdbc', 'table-name'='t', 'url'='mysql://u@h:3306HUNTER2x/db'",
        "'connector'='jdbc', 'table-name'='t', 'url'='sqlite:///x', 'passwordEnv'='a!HUNTER2x'",
        "'connector'='jdbc', 'table-name'='t', 'url'='sqlite:///x', 'password.env'='a!HUNTER2x'",
        "'connector'='jdbc', 'table-name'='t', 'url'='sqlite:///x', 'passwordVariable'='a!HUNTER2x'",
        *(
            f"'connector'='jdbc', 'table-name'='t', 'url'='{url}'"
            for url in (
                "postgresql;//u:HUNTER2x@h/db", "postgresql //u:HUNTER2x@h/db", "postgresql.// u:HUNTER2x@h/db",
                "postgresql\\//u:HUNTER2x@h/db", "/u:HUNTER2x@h", "scott/HUNTER2x@h:1521/x", "u@h:HUNTER2x/db",
                "postgresql:// u:HUNTER2x@h/db", "postgresql://\nu:HUNTER2x@h/db", "postgresql://u@HUNTER2x:h/db",
                "jdbc:mysql://u@HUNTER2x:h/db", "jdbc;mysql://u:HUNTER2x@h/db",
            )
        ),
        "'topic'='t', 'nameServerAddress'='u:HUNTER2x@127.0.0.1:9876'",
        "'topic'='t', 'format'='avro-confluent', 'avro-confluent.url'='http:/u:HUNTER2x@h'",
        "'topic'='t', 'format'='avro-confluent', 'avro-confluent.url'='https//u:HUNTER2x@h/x'",
        "'topic'='t', 'format'='avro-confluent', 'avro-confluent.url'='ftp://u:HUNTER2x@h'",
        "'topic'='t', 'format'='avro-confluent', 'avro-confluent.url'='htps://u:HUNTER2x@h'",
        "'topic'='t', 'format'='avro-confluent', 'avro-confluent.url'='u:HUNTER2x@h:1'",
        "'topic'='t', 'format'='avro-confluent', 'avro-confluent.url'='http://u:HUNTER2x/x'",
        "'topic'='t', 'format'='json-confluent', 'json-confluent.url'='http:/u:HUNTER2x@h'",
        "'topic'='t', 'format'='avro-confluent', 'avro-confluent.url'='http;//u:HUNTER2x@h'",
        "'topic'='t', 'format'='avro-confluent', 'avro-confluent.url'='http/u:HUNTER2x@h'",
        "'topic'='t', 'format'='avro-confluent', 'avro-confluent.url'='/u:HUNTER2x@h'",
        "'topic'='t', 'format'='json-confluent', 'json-confluent.url'='http;//u:HUNTER2x@h'",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", ", 'x' 'y'"])
def test_a_place_with_a_password_that_is_written_wrongly_is_refused_and_hidden(options: str, end: str) -> None:
    text = f"CREATE TABLE t (a INT) WITH ({options}{end})"
    assert "HUNTER" not in masked(text)
    with pytest.raises(SqlError) as raised:
        Script().run(text)
    assert "HUNTER" not in str(raised.value)


_OPTIONS = "WITH ('username'='u','password'='HUNTER2x',\n'url'='mysql://u:HUNTER2x@h/db'\n)"


@pytest.mark.parametrize(
    "before",
    [
        "CREATE TABLE t (a INT COMMENT 'it's') ",
        "CREATE TABLE t (a INT) COMMENT 'it's' ",
        "CREATE TABLE t (a INT,\nb AS a + INTERVAL '5 SECOND\n) ",
        "CREATE TABLE t (a INT, b AS CONCAT('x, a)) ",
        "CREATE TABLE t (a INT) WITH ('topic'='it's', 'b'='c', 'd'='e;f');\nCREATE TABLE u (a INT) ",
        "SELECT a FROM t WHERE b = 'q;\nCREATE TABLE t (a INT) ",
        "SELECT a FROM t WHERE b = 'q; CREATE TABLE t (a INT) ",
        "SELECT a FROM t WHERE b = 'q\nCREATE TABLE t (a INT) ",
        "INSERT INTO o VALUES ('it's');\n",
        "-- it's\nCREATE TABL t (a INT) ",
        "CREATE TABLE t (a INT COMMENT `x) ",
        "CREATE TABLE t (a INT) /* ",
    ],
)
def test_an_apostrophe_too_many_shows_no_secret(before: str) -> None:
    for options in (_OPTIONS, _OPTIONS.replace("'='", "' = '").replace(",", ",\n")):
        text = f"{before}{options};\nSELECT 'x' FROM t"
        assert "HUNTER" not in _shown(text)
        for place in (each.start() for each in re.finditer("\n|HUNTER|$", text)):
            span = Span(max(0, place - 1), place + 9)
            assert "HUNTER" not in f"{Source(text).error(Source(text).shown(span), span)}"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM t WHERE 'token' = token AND idd = 1",
        "SELECT id FRM t WHERE 'token' = token",
        "SELECT JSON_OBJECT('token' : token) FROM t",
        "SELECT JSON_OBJECT('token' : 'x', 'password' VALUE 'y') FRM t",
        "UPDATE t SET token = 'x' WHERE password = 'y'",
        "INSERT INTO t VALUES ('password', 'x') ('token' 'y')",
        "SELECT a FROM t EMIT WITH DELAY '1' MINUTE BEFORE WATERMARK WHERE token = 'x'",
        "WITH token (pwd) AS (SELECT 'x' WHERE pwd = 'y') SELECT pwd = 'z' FRM token",
    ],
)
def test_a_query_has_no_options(query: str) -> None:
    assert masked(query) == query
    with pytest.raises(SqlError) as raised:
        Script().run(query)
    assert raised.value.shown.splitlines()[0] == f"  {query}"


_NAMES = (
    "password", "PASSWORD", "passwrod", "creds", "credential", "credentials", "keypass", "storepass", "jwt", "hmac-key",
    "master.key", "ssl.keystore.key", "db[password]", "masterKey", "dbPwd", "SA_PWD", "http.headers.authorization",
)  # fmt: skip
_PLACES = (
    "CREATE TABLE t (a INT) WITH ('connector' = 'print', {}, 'topic' = 'zz')",
    "CREATE TABLE t (a INT) WITH (\n  {},\n  'topic' = 'zz'\n);\nSELECT b FROM c;",
    "CREATE TABLE t (a INT) WIHT ({});",
    "CREATE TABLE t (a INT) ({});",
    "CREATE TABLE t (a INT)\nWITH {}\n;",
    "CREATE FUNCTION f AS 'm.f' LANGUAGE PYTHON WITH ({});",
    "CREATE VIEW v AS SELECT a FROM t WHERE x = 'y';\nSELECT a FROM t /*+ OPTIONS({}) */ WHERE b;",
    "SET {};",
    "SELECT a FROM t WHERE b = 'q';\nSTE {};",
)


def _shown(text: str) -> str:
    """The text without secrets, and the error, if it is wrong."""
    try:
        Script().run(text)
    except SqlError as error:
        return f"{masked(text)}\n{error}"
    return masked(text)


@pytest.mark.parametrize(
    "written",
    [
        "= '@'", "= 'it\\'s @'", "= 'a'@'", "= 'a' @'", "= 'it's @'", "= \u2018@\u2019", "= \u201c@\u201d",
        "= '@\u2019", '= "@"', "= `@`", "= \xb4@\xb4", "= 'a'||'@'", "= 'a' ||\n '@'", "= 'a'\n  || '@'", "= 'a' '@'",
        "= 'a'\n '@'", "= CONCAT('a','@')", "= CONCAT('a',\n '@')", "= DECODE('a)','@')", "= 'a' + '@'", "= ('@')",
        "= ['@']", "= @", "= '@''", "= '@\\''", "= ''@''", "= 'a'''@'", "= 'a;@'",
        "= 'a){}@'", "= a;@", "= a)@", "= a @ b", "= 'a')@'", "= 'a',@'", "= 'a', @'", "= 'a';@'", "= 'a','@'",
        "= 'a'--@'", "= 'a'/*@'", "= 'a\n@'", "= 'it's\n@'", "=\n\n '@'", "= /* c */ '@'", "= -- it's\n '@'", "= N'@'",
        "= _utf8'@'", "= E'a\\'@'", "= U&'@'", "= $$@$$", "'@'", "@", "is '@'", "is @", "equals '@'", "TO '@'",
        ":= '@'", "=> '@'", "= %@", "; '@'",
        ") '@'", "+ '@'", "/ '@'", "\uff1d '@'",
    ],
)  # fmt: skip
def test_however_a_secret_is_written_nothing_shows_it(written: str) -> None:
    option = f"{{}} {written.replace('@', 'Sesame')}"
    for place, name in itertools.product(_PLACES, _NAMES):
        assert "Sesame" not in masked(place.replace("{}", option.replace("{}", f"'{name}'", 1)))
    for place in _PLACES:
        assert "Sesame" not in _shown(place.replace("{}", option.replace("{}", "'password'", 1)))


@pytest.mark.parametrize(
    "name",
    ["@", '"@"', "`@`", "'@", "@'", "\u2018@\u2019", "\\'@\\'", "'@ '", "' @'", "'db[@]'", "'pass word'", "'@;", "'@)"],
)
def test_however_its_name_is_written_nothing_shows_a_secret(name: str) -> None:
    for place, word in itertools.product(_PLACES, ("password", "creds", "ssl.keystore.key")):
        for written in ("= 'Sesame'", "= Sesame", "'Sesame'", "is 'Sesame'", "= 'a'Sesame'", "= 'Sesame"):
            assert "Sesame" not in masked(place.replace("{}", f"{name.replace('@', word)} {written}"))
    for place in _PLACES:
        assert "Sesame" not in _shown(place.replace("{}", f"{name.replace('@', 'password')} = 'a'Sesame'"))


_SCRIPTS = (
    "CREATE TABLE t (a INT, token STRING) WITH ('connector'='jdbc', 'url'='mysql://h/db', 'password' = 'Sesame');\n"
    "INSERT INTO o SELECT a FROM t WHERE token = 'x';",
    "CREATE TABLE u (\n  id INT,\n  pwd STRING COMMENT 'the pwd'\n) WITH (\n  'url' = 'postgresql://me@h:5/db',\n"
    "  'username' = 'me',\n  'password' = 'Sesame',\n  'table-name' = 'x'\n);\nSELECT id FROM u;",
    "SET db.password = Sesame;\nCREATE VIEW v AS SELECT a FROM t;\n"
    "CREATE TABLE t (a INT) WITH (password = 'Sesame', 'a' = 'b');",
)


@pytest.mark.parametrize("script", _SCRIPTS, ids=["one line", "lines", "settings"])
def test_one_to_three_typos_show_no_secret(script: str) -> None:
    choice = random.Random(7)
    for _ in range(100):
        text = script
        for _ in range(choice.randint(1, 3)):
            at, put = choice.randrange(len(text)), choice.choice(" '\"`;:,.()=/@-+*\\\nxA0_#{}[]|~!?%&$<>^")
            some = choice.choice((put + text[at : at + 1], "", put, text[at : at + 2][::-1]))
            text = text[:at] + some + text[at + (2 if len(some) == 2 and not some.startswith(put) else 1) :]
        assert "Sesame" not in _shown(text), text


@pytest.mark.parametrize("key", ["url", "headers", "zz", "sasl.jaas.config", "topic"])
@pytest.mark.parametrize("quoted", ["'{}'", "'{}", "'{}'x", "'it's {}'", '"{}"', "\u2018{}\u2019", "{}", "'{}' 'y'"])
def test_whatever_holds_a_secret_nothing_shows_it(key: str, quoted: str) -> None:
    for value in (
        "~=Sesame", "host=h ~=a/Sesame port=5", "host=h ~=''a Sesame''", "host=h;~=Sesame;x=1", "~=> Sesame",
        "~[0]=Sesame", "mysql://h/db?~=Sesame&x=1", "mysql://h/db?~=a;Sesame", "mysql://me:a/Sesame@h/db",
        "https://Sesame@h/", "mssql://?odbc_connect=UID%3Dme%3B~%3Da%3BSesame%3Bx%3D1", '{"~": "Sesame"}',
        '{"~":"a\\"Sesame", "x": 1}', '{"x": {"~": ["a", "Sesame"]}}', '{\\"~\\": \\"Sesame\\"}', "{~: Sesame}",
        "X-~: Sesame", "A: b, ~: a,Sesame", "Authorization: Bearer Sesame", "Bearer Sesame", "Cookie: a=b; c=Sesame",
        'x username=me ~="Sesame";', "<~>Sesame</~>",
    ):  # fmt: skip
        for word, place in itertools.product(
            ("password", "creds", "hmac-key", "db.password"), _PLACES[:2] + _PLACES[-1:]
        ):
            text = place.replace("{}", f"'{key}' = {quoted.replace('{}', value.replace('~', word))}")
            assert "Sesame" not in masked(text), text


@pytest.mark.parametrize("word", ["password", "expected", "option", "connector", "WITH", "a"])
def test_an_ordinary_word_as_a_password_replaces_no_word_of_a_message(word: str) -> None:
    with pytest.raises(SqlError) as raised:
        Script().run(f"CREATE TABLE t (a INT) WITH ('connector' = 'print', 'pasword' = '{word}')")
    assert raised.value.message == "the option 'pasword' is unknown: did you mean 'password'?"
    assert f"'pasword' = '{HIDDEN}')" in raised.value.shown


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("passwrod", True), ("PASSWORD", True), ("sasl.password", True), ("secert-key", True), ("apiToken", True),
        ("pwd", True), ("password-file", False), ("topic", False), ("table-name", False), ("path", False), ("1", False),
    ],
)  # fmt: skip
def test_which_options_are_secret(key: str, secret: bool) -> None:
    assert is_secret(key) is secret


@pytest.mark.parametrize(
    ("place", "shown", "carets"),
    [("'tabel'", "'tabel'", 7), ("'hunter2'", "'***'", 5), ("WITH", "WITH", 4), ("'pasword'", "'pasword'", 9)],
)
def test_carets_stand_below_their_place(place: str, shown: str, carets: int) -> None:
    text = "CREATE TABLE t (a INT)\nWITH ('pasword' = 'hunter2', 'tabel' = 'c')\n;"
    start = text.index(place)
    source, span = Source(text, "job.sql"), Span(start, start + len(place))
    message, line, marks = str(source.error(f"unexpected {source.shown(span)}", span)).splitlines()
    assert message.endswith(f": unexpected {shown}")
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


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("headers is 'a: b, X-Api-Key: it\\'s x'; it can be y", "headers is 'a: b, X-Api-Key: ***'; it can be y"),
        ("there is no file s3://k:xy@b/z.csv", "there is no file s3://k:***@b/z.csv"),
        ("/a/token=5/x.csv, row 7: it is bad", "/a/token=***/x.csv, row 7: it is bad"),
        ("mysql://h/db?password=x&y=1 cannot be read", "mysql://h/db?password=***&y=1 cannot be read"),
        ("\"Access denied for user 'u'@'h' (using password: YES)\"",) * 2,
        ("(1045, \"Access denied for user 'u'@'h' (using password: NO)\")",) * 2,
        ("give password_env=, a variable, or 'password_env'",) * 2,
        ("the option 'password' is unknown: did you mean 'passwords'?",) * 2,
    ],
)
def test_messages_have_no_secret_in_what_they_quote(message: str, wanted: str) -> None:
    assert SqlError(message).message == wanted


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/a/token=5/x.csv", "/a/token=***/x.csv"),
        ("s3://k:hunter2@b/x.csv", "s3://k:***@b/x.csv"),
        ("/a/token-service/x.csv", "/a/token-service/x.csv"),
    ],
)
def test_a_path_is_the_same_in_all_that_shows_it(path: str, shown: str) -> None:
    assert Line(b"", path, 7).place == f"{shown}, row 7"
    assert repr(ConnectorOptions(path)) == f"ConnectorOptions('{shown}', '', 0)"
    with pytest.raises(SqlError) as raised:
        raise Source(f"SET 'path' = '{path}'").error(f"there is no file {path}", Span(0, 1))
    assert raised.value.message == f"there is no file {shown}"
    assert raised.value.shown.startswith(f"  SET 'path' = '{shown}'")
