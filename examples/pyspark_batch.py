"""Reads a topic as a table of plain PySpark, sums a column by another, and writes the sums to a topic. Without Beam.

    rmqio local --port 9876 --topic orders:4 --topic totals &
    python examples/pyspark_batch.py --name_server=127.0.0.1:9876

For the orders of write_with_keys.py, it writes and shows these totals:

    |customer|total|
    |     c-0| 45.0|
    |     c-1| 55.0|
    |     c-2| 65.0|
"""

import argparse
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--source_topic", default="orders")
    parser.add_argument("--sink_topic", default="totals")
    arguments = parser.parse_args()
    at = {"nameServer": arguments.name_server} if arguments.name_server else {}

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark runs the first python3 on the PATH
    spark = SparkSession.builder.appName("pyspark_batch").getOrCreate()

    messages = spark.read.format("rocketmq").options(**at, subscribe=arguments.source_topic).load()
    order = F.from_json(F.col("body").cast("string"), "customer string, amount double")
    totals = messages.select(order.alias("order")).groupBy("order.customer").agg(F.sum("order.amount").alias("total"))
    totals = totals.orderBy("customer").cache()  # so that the topic is read once
    totals.show()

    bodies = totals.select(F.to_json(F.struct("*")).alias("body"), F.array("customer").alias("keys"))
    bodies.write.format("rocketmq").options(**at, topic=arguments.sink_topic).mode("append").save()
