"""The grammar: what it takes, in all spellings, and errors that say where, what was expected, and what was meant."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.syntax import nodes, statements
from rmqio.sql.syntax.parser import RESERVED, parse


def one(text: str) -> statements.Statement:
    (statement,) = parse(text)
    return statement


def expression(text: str) -> nodes.Expression:
    statement = one(f"SELECT {text} FROM t")
    assert isinstance(statement, statements.QueryStatement)
    assert isinstance(statement.query.body, nodes.Select)
    (item,) = statement.query.body.items
    assert isinstance(item, nodes.Item)
    return item.expression


TABLES = {
    "rocketmq-flink": """
        CREATE TABLE user_behavior (
          `topic` STRING METADATA VIRTUAL, user_id BIGINT, behavior STRING,
          ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
          PRIMARY KEY (user_id) NOT ENFORCED
        ) WITH ('connector' = 'rocketmq', 'topic' = 'user_behavior', 'consumerGroup' = 'g',
                'nameServerAddress' = '127.0.0.1:9876');""",
    "RocketMQ-SQL": "create table 设备 ({设备 编号} varchar, data varchar) with (topic = 'd', consumerGroup = 'g')",
    "rsqldb": "CREATE TABLE t (a varchar, b bigint, primary key (a),) WITH (type='rocketmq', topic='t', groupName='g')",
    "Blink": "create table t (a varchar, ts timestamp, b bigint header, watermark wk for ts as withOffset(ts, 1000), "
    "PERIOD FOR SYSTEM_TIME) with (type = 'print')",
    "types": "CREATE TABLE t (a ARRAY<ROW<x INT, y MAP<STRING, DECIMAL(10, 2)>>>, b TIMESTAMP(3) WITH LOCAL TIME ZONE, "
    "c TIMESTAMP WITHOUT TIME ZONE, d DOUBLE PRECISION NOT NULL, e VARCHAR(10) COMMENT 'x', f AS a[1].x)",
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
def test_tables_of_all_dialects(text: str) -> None:
    assert isinstance(one(text), statements.CreateTable)


def test_a_table_has_what_it_says() -> None:
    table = one(TABLES["rocketmq-flink"])
    assert isinstance(table, statements.CreateTable)
    topic, user, *_, watermark, key = table.items
    assert topic == statements.MetadataColumn(nodes.Name("topic"), nodes.TypeName("STRING"), None, True)
    assert user == statements.PhysicalColumn(nodes.Name("user_id"), nodes.TypeName("BIGINT"))
    assert isinstance(watermark, statements.Watermark)
    assert key == statements.PrimaryKey((nodes.Name("user_id"),))
    assert [option.key for option in table.options] == ["connector", "topic", "consumerGroup", "nameServerAddress"]


QUERIES = [
    "select 1",
    "select * from table(tumble(table bid, descriptor(ts), interval '10' second)) t where a = 1 emit changes",
    "select a.`x`, b.*, count(distinct y) filter (where z > 1) as n from a inner join b on a.id = b.id "
    "left join c using (id), d cross join e where type like 'temp%' escape '\\' order by 1 desc nulls last limit 10",
    "with x as (select 1 as a union all select 2) select case when a is not null then 1 else 2 end, case a when 1 "
    "then 'x' end, trim(both ' ' from s), substring(s from 1 for 2), ceil(ts to day), extract(year from ts), "
    "timestampdiff(SECOND, a, b), position('a' in s), array[1, 2][1], map['a', 1]['a'], row(1, 2), (1, 2), a.b.c "
    "from x",
    "select interval '1:10' minute to second, date '2020-01-01', not exists (select 1), x in ((select 1)), "
    "((select 1) union (select 2)) from x",
    "select o.*, r.rate from orders as o join rates for system_time as of o.proctime as r on o.c = r.c",
    "select row_number() over (partition by a order by b desc) as rn, sum(x) over (order by ts range between "
    "interval '1' hour preceding and current row) from t",
    "select t.word from t, lateral table(split(line)) as s(word, n), unnest(arr) with ordinality as u(x, i)",
    "select count(*), sum(x) from cumulate(table t, descriptor(ts), interval '1' minute, interval '1' hour) "
    "group by window_start, window_end having count(*) > 1",
    "select a between 1 and 2 and b, a not between symmetric 1 and 2, a not in (1, 2), a is not distinct from b, "
    "a is not true, left(a, 2), if(a, b, c) from t",
    "select date, timestamp, key, selected from t -- a comment\n/* and another */",
]


@pytest.mark.parametrize("text", QUERIES)
def test_queries(text: str) -> None:
    assert isinstance(one(text), statements.QueryStatement)


STATEMENTS = {
    "create function f as 'mod.f' language python": statements.CreateFunction,
    "drop table if exists t": statements.Drop,
    "set 'table.exec.state.ttl' = '1 h'": statements.SetOption,
    "set x.y = 3": statements.SetOption,
    "reset": statements.Reset,
    "explain plan for insert into t select 1": statements.Explain,
    "show create table t": statements.Show,
    "desc t": statements.Describe,
    "create view v (x) as select a from (select a from b where (a = '1'))": statements.CreateView,
    "insert into s (a, b) values (1, 'x'), (2, 'y')": statements.Insert,
    "insert into s select 1 from t emit with delay '1' minute before watermark, without delay after watermark": (
        statements.Insert
    ),
}


@pytest.mark.parametrize(("text", "kind"), STATEMENTS.items(), ids=STATEMENTS)
def test_statements(text: str, kind: type) -> None:
    assert isinstance(one(text), kind)


def test_a_script_has_its_statements_in_order() -> None:
    assert [type(each) for each in parse(";; select 1; set a = b;\n-- the end\n")] == [
        statements.QueryStatement,
        statements.SetOption,
    ]


def test_operators_bind_as_in_sql() -> None:
    assert expression("a + b * c - d") == expression("(a + (b * c)) - d")
    assert expression("not a = b and c or d") == expression("((not (a = b)) and c) or d")
    assert expression("a between 1 and 2 and b") == expression("(a between 1 and 2) and b")
    assert expression("-a + b") == expression("(-a) + b")
    assert expression("a || b = c") == expression("(a || b) = c")


def test_names_keep_their_case_and_quotes_go() -> None:
    assert expression("`Select`") == nodes.Column(nodes.Name("Select"))
    assert expression("`a``b`") == nodes.Column(nodes.Name("a`b"))
    assert expression("{温度}") == expression("`温度`") == expression("温度")


def test_a_string_has_its_quote_twice() -> None:
    assert expression("'it''s'") == nodes.Literal("string", "it's")


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_a_reserved_word_is_no_name_without_backquotes(word: str) -> None:
    assert isinstance(expression(f"`{word}`"), nodes.Column)
    with pytest.raises(SqlError):
        parse(f"CREATE TABLE {word} (a INT)")


WRONG = [
    ("select a,, b from t", 10, "unexpected ,: expected an expression or '*'"),
    ("select from t", 8, "FROM is a reserved word; as a name it is written `from`"),
    ("selec a from t", 1, "did you mean 'SELECT'?"),
    ("select a form t", 15, "did you mean 'FROM' instead of 'form'?"),
    ("select 'abc from t", 8, "the string does not end"),
    ("select `abc from t", 8, "the name does not end"),
    ("select {设备 from t", 8, "the name does not end: '}' is missing"),
    ("select /* a from t", 8, "the comment does not end"),
    ("select /*+ x */ a from t", 8, "hints are not supported"),
    ('select "a" from t', 8, "strings are in 'single quotes', names in `backquotes`"),
    ("select a from t where", 21, "the statement is not complete: expected an expression"),
    ("create table t (a int b int)", 23, "expected '(', ')', ',', METADATA, NOT, NULL or PRIMARY"),
    ("create table t (a int) with (topic 'x')", 36, "expected '.' or '='"),
    ("select a from t join b", 22, "a join needs a condition"),
    ("select cast(a as) from t", 17, "expected a name"),
    ("select * from t match_recognize (partition by x)", 17, "MATCH_RECOGNIZE is not supported"),
    ("select interval '1' dayz", 21, "dayz is not a unit of time"),
    ("insert into select 1", 13, "SELECT is a reserved word"),
    ("select json_object(key 'a', 1)", 27, "unexpected ,: expected OR or VALUE"),
    ("select a from t group a", 23, "unexpected a: expected BY"),
    ("select case when a then 1 from t", 27, "expected ELSE, END, OR or WHEN"),
    ("update t set a = 1", 1, "UPDATE is not supported"),
    ("select a natural join b", 10, "NATURAL"),
    ("create table t (a timestamp with time zone)", 29, "TIMESTAMP WITH TIME ZONE is not supported"),
    ("create table t (a int) partitioned by (a)", 1, "a table of rmqio is not partitioned"),
    ("select map['a'] from t", 8, "one value is missing"),
    ("select a from t limit 1.5", 23, "1.5 is not a whole number"),
]


@pytest.mark.parametrize(("text", "column", "message"), WRONG, ids=[each[0] for each in WRONG])
def test_errors(text: str, column: int, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(f"set a = b;\n{text}", "job.sql")
    error = caught.value
    assert message in error.message
    assert (error.file, error.line, error.column) == ("job.sql", 2, column)
    assert str(error).startswith(f"job.sql:2:{column}: {error.message}\n  {text}\n")


def test_carets_stand_under_what_is_wrong() -> None:
    with pytest.raises(SqlError) as caught:
        parse("select `设备`, x y zed from t")
    assert str(caught.value).splitlines()[1:] == [
        "  select `设备`, x y zed from t",
        "                     ^^^",
    ]
