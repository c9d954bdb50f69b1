"""The same work in plain PySpark, by hand: what Beam costs. Runs in a worker process, on the PySpark that ours runs on.

The RDD functions are Python, element by element, as Beam's are. The DataFrame functions are Spark's own expressions:
no element reaches Python, which is what somebody gives up who has to run Python code on each.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.spark import pipelines as p
from bench.spark.settings import CORES
from bench.spark.side import leave, prepare, spark_settings, timed

_sessions: list[SparkSession] = []


def start(folder: str) -> dict[str, Any]:
    """Called before anything else."""
    prepare()
    builder = SparkSession.builder.appName("bench").config("spark.sql.shuffle.partitions", CORES)
    for name, value in spark_settings(Path(folder)).items():
        builder = builder.config(name, value)
    _sessions.append(builder.config("spark.ui.showConsoleProgress", "false").getOrCreate())
    return {}


def run_rdd(name: str, elements: int) -> dict[str, Any]:
    """One of the pipelines with RDDs."""
    return timed(lambda path: leave(_RDD[name](_sessions[0], elements), path))


def run_dataframe(name: str, elements: int) -> dict[str, Any]:
    """One of the pipelines with DataFrames."""
    return timed(lambda path: leave(_DATAFRAME[name](_sessions[0], elements), path))


def _numbers(session: SparkSession, elements: int) -> Any:
    sources = session.sparkContext.parallelize(range(p.SOURCES), p.SOURCES)
    return sources.flatMap(lambda source: p.source_range(source, elements))


def _add_input(accumulator: tuple[int, int], x: int) -> tuple[int, int]:
    return accumulator[0] + 1, accumulator[1] + x


def _merge(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(add, one, other))


def _rdd_pardo(session: SparkSession, elements: int) -> Any:
    chain = _numbers(session, elements).map(p.scaled).map(p.plus_one).filter(p.is_not_by_five)
    return chain.filter(p.is_even).map(p.halved).aggregate((0, 0), _add_input, _merge)


def _rdd_combine(session: SparkSession, elements: int) -> Any:
    sums = _numbers(session, elements).map(p.keyed).reduceByKey(add, CORES)
    return sums.map(p.digest_of_sum).reduce(_merge)


def _rdd_group(session: SparkSession, elements: int) -> Any:
    groups = _numbers(session, elements).map(p.keyed).groupByKey(CORES)
    return groups.map(p.digest_of_group).reduce(_merge)


def _rdd_join(session: SparkSession, elements: int) -> Any:
    entries = session.sparkContext.broadcast(p.table())
    joined = _numbers(session, elements).map(lambda x: p.joined(x, entries.value))
    return joined.aggregate((0, 0), _add_input, _merge)


def _rdd_stages(session: SparkSession, elements: int) -> Any:
    def grouped(rdd: Any) -> Any:
        return rdd.map(p.small_keyed).groupByKey(CORES).flatMap(p.group_plus_one)

    def reshuffled(rdd: Any) -> Any:
        return rdd.repartition(CORES).map(p.plus_one)

    made = session.sparkContext.parallelize(range(p.SMALL), CORES).map(p.plus_one)
    fifth = reshuffled(grouped(reshuffled(grouped(made)))).cache()
    others = session.sparkContext.broadcast(fifth.collect())
    sixth = fifth.map(lambda x: p.plus_number_of(x, others.value))
    sums = reshuffled(grouped(sixth)).map(p.small_keyed).reduceByKey(add, CORES)
    result = sums.map(p.value_of).aggregate((0, 0), _add_input, _merge)
    fifth.unpersist()
    return result


def _row(frame: DataFrame) -> list[int]:
    (row,) = frame.collect()
    return [int(value) for value in row]


def _df_numbers(session: SparkSession, elements: int) -> DataFrame:
    return session.range(0, elements, 1, p.SOURCES).withColumnRenamed("id", "x")


def _df_pardo(session: SparkSession, elements: int) -> Any:
    chain = _df_numbers(session, elements).select((F.col("x") * 3 + 1).alias("y"))
    kept = chain.where("y % 5 != 0 AND y % 2 = 0").select(F.expr("y div 2").alias("z"))
    return _row(kept.agg(F.count("z"), F.sum("z")))


def _df_keyed(session: SparkSession, elements: int) -> DataFrame:
    return _df_numbers(session, elements).select((F.col("x") % p.KEYS).alias("k"), "x")


def _df_combine(session: SparkSession, elements: int) -> Any:
    sums = _df_keyed(session, elements).groupBy("k").agg(F.sum("x").alias("s"))
    return _row(sums.agg(F.count("k"), F.sum("s"), F.sum(F.expr("(k + 1) * s"))))


def _df_group(session: SparkSession, elements: int) -> Any:
    groups = _df_keyed(session, elements).groupBy("k").agg(F.collect_list("x").alias("xs"))
    summed = groups.select("k", F.size("xs").alias("n"), F.expr("aggregate(xs, 0L, (a, x) -> a + x)").alias("s"))
    return _row(summed.agg(F.count("k"), F.sum("n"), F.sum("s"), F.sum(F.expr("(k + 1) * s"))))


def _df_join(session: SparkSession, elements: int) -> Any:
    entries = session.createDataFrame(list(p.table().items()), "k long, v long")
    joined = _df_keyed(session, elements).join(F.broadcast(entries), "k").select((F.col("x") * F.col("v")).alias("y"))
    return _row(joined.agg(F.count("y"), F.sum("y")))


def _df_stages(session: SparkSession, elements: int) -> Any:
    def grouped(frame: DataFrame) -> DataFrame:
        keyed = frame.groupBy((F.col("x") % p.SMALL_KEYS).alias("k")).agg(F.collect_list("x").alias("xs"))
        return keyed.select(F.explode(F.expr("transform(xs, x -> x + 1)")).alias("x"))

    def reshuffled(frame: DataFrame) -> DataFrame:
        return frame.repartition(CORES).select((F.col("x") + 1).alias("x"))

    made = session.range(0, p.SMALL, 1, CORES).select((F.col("id") + 1).alias("x"))
    fifth = reshuffled(grouped(reshuffled(grouped(made)))).cache()
    number = fifth.count()
    sixth = fifth.select((F.col("x") + F.lit(number)).alias("x"))
    sums = reshuffled(grouped(sixth)).groupBy((F.col("x") % p.SMALL_KEYS).alias("k")).agg(F.sum("x").alias("s"))
    result = _row(sums.agg(F.count("s"), F.sum("s")))
    fifth.unpersist()
    return result


_RDD: Final[dict[str, Callable[[SparkSession, int], Any]]] = {
    "pardo": _rdd_pardo,
    "combine": _rdd_combine,
    "group": _rdd_group,
    "join": _rdd_join,
    "stages": _rdd_stages,
}
_DATAFRAME: Final[dict[str, Callable[[SparkSession, int], Any]]] = {
    "pardo": _df_pardo,
    "combine": _df_combine,
    "group": _df_group,
    "join": _df_join,
    "stages": _df_stages,
}
